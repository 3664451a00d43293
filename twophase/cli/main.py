"""The command `twophase`: its subcommands, and the way they all show errors."""

from __future__ import annotations

import logging
import platform
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click

from twophase.cli.display.console import JobConsole, show_error
from twophase.cli.display.streams import lossy_streams
from twophase.cli.first_signals import STOPPABLE, send_kept_signal
from twophase.cli.options import WORDS, expect_json, is_json, is_verbose
from twophase.cli.signals import InterruptedStart, StopSignals
from twophase.errors import PreflightError
from twophase.internals.pyspark_version import check_pyspark
from twophase.wording import of_command

_COMMANDS = ("check", "checkpoints", "repair", "run", "savepoint", "state")

_EXIT_CODES = """\
\b
Exit codes:
  0  done, or stopped cleanly
  1  an error that a restart may mend
  2  the command line, an option or the environment is not right; nothing was written
  3  the job must not go on before an operator has looked
  4  another driver has taken the job over"""


class Commands(click.Group):
    """Imports a command only when it is needed, and shows all errors in the same form."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted({*_COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name, if there is one."""
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f"twophase.cli.{cmd_name}"), cmd_name)
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Check the environment, then run the command line."""
        with lossy_streams():
            try:
                check_pyspark()
            except PreflightError as error:
                sys.exit(show_error(JobConsole(stderr=True), error, verbose=False))
            return super().main(*args, **kwargs)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Handle signals before the command that takes seconds to start is even imported."""
        if args[:1] == [STOPPABLE]:
            expect_json(ctx, args)
            ctx.obj = ctx.with_resource(StopSignals(click.echo).handled())
            send_kept_signal()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; turn an error into text and an exit code."""
        with of_command() as ctx.meta[WORDS]:
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt as error:
            if ctx.obj is None and not isinstance(error, InterruptedStart):
                raise
        except Exception as error:  # noqa: BLE001 shown, and reported by the exit code
            if ctx.obj is None or not ctx.obj.interrupted:
                ctx.exit(_show(error))
        _say("Stopped by a signal before the job had begun: nothing was written.")
        return None


def _say(text: str) -> None:
    if is_json():
        from twophase.cli.display.json_view import json_line

        text = json_line(logging.INFO, text)
    click.echo(text)


def _show(error: Exception) -> int:
    if is_json():
        # Imported here: it needs what most commands do not, and they start sooner.
        from twophase.cli.display.json_view import print_error

        return print_error(error, verbose=is_verbose())
    return show_error(JobConsole(stderr=True), error, verbose=is_verbose())


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(
        f"twophase {version('twophase')} (pyspark {version('pyspark')}, Python "
        f"{platform.python_version()})"
    )
    ctx.exit()


@click.group(
    cls=Commands, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions and exit.",
)
def main() -> None:
    """Exactly-once sinks for PySpark Structured Streaming, by two-phase commit.

    \b
    Examples:
      twophase check orders.yaml
      twophase run orders.yaml
      twophase checkpoints /chk/orders
      twophase state read /chk/orders
      twophase repair accept-loss orders.yaml --checkpoint 41 --sink facts
    """
