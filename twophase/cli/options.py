"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from twophase.options.job_options import SinkAhead

Decorator = Callable[[Any], Any]
_VERBOSE = "twophase.verbose"
_JSON = "twophase.json"
WORDS = "twophase.words"
"""The key of the command's `CommandWords` in the context."""


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_VERBOSE] = value


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Show log lines and tracebacks.",
)
"""Adds `--verbose`: see `is_verbose`."""


def _word(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that lets remedies name what the command was given."""

    def note(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        if value is not None and WORDS in ctx.meta:
            setattr(ctx.meta[WORDS], name, str(value))
        return value

    return note


job_file_argument = click.argument(
    "job_file", metavar="JOB.yaml", type=click.Path(path_type=Path), callback=_word("job_file")
)
checkpoint_location_option = click.option(
    "--checkpoint-location",
    metavar="FOLDER",
    callback=_word("checkpoint_location"),
    help="The job's folder; sets checkpointLocation.",
)


sink_ahead_option = click.option(
    "--sink-ahead",
    type=click.Choice([policy.value for policy in SinkAhead]),
    help="With --restore: what to do if a sink has newer rows; sets restore.sink_ahead.",
)


def combined(*options: Decorator) -> Decorator:
    """Return a decorator that adds several options to a command, the last one first."""
    return lambda command: reduce(lambda done, option: option(done), options, command)


def _remember_json(ctx: click.Context, _: click.Parameter, value: str) -> bool:
    ctx.meta[_JSON] = value == "json"
    return value == "json"


log_format_option = click.option(
    "--log-format",
    "as_json",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    callback=_remember_json,
    help="json: one JSON object a line, for programs that collect logs.",
)
"""Adds `--log-format`: see `is_json`."""


def expect_json(ctx: click.Context, words: Sequence[str]) -> None:
    """Let `is_json` tell what is asked for before the command that parses it is there."""
    asked = "--log-format=json" in words or ("--log-format", "json") in pairwise(words)
    ctx.meta[_JSON] = asked


def is_json() -> bool:
    """Return whether `--log-format json` was given to the running command."""
    return bool(click.get_current_context().meta.get(_JSON, False))


def is_verbose() -> bool:
    """Return whether `--verbose` was given to the running command."""
    return bool(click.get_current_context().meta.get(_VERBOSE, False))
