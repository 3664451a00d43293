"""The command line itself: help, version, and how errors look."""

from __future__ import annotations

import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from twophase.cli.main import Commands, main
from twophase.cli.options import verbose_option
from twophase.errors import (
    ConfigError,
    FencedError,
    OffsetOutOfRangeError,
    PreflightError,
    StopJobError,
    TwoPhaseError,
)

RAISED: list[tuple[Exception, int]] = [
    (ConfigError("a", remedy="b"), 2),
    (PreflightError("a", remedy="b"), 2),
    (StopJobError("a", remedy="b"), 3),
    (FencedError("a", remedy="b"), 4),
    (TwoPhaseError("a", remedy="b"), 1),
    (RuntimeError("a"), 1),
]


@pytest.fixture
def error() -> Iterator[list[Exception]]:
    """What the command `fail` raises."""
    raised: list[Exception] = []

    @click.command()
    @verbose_option
    def fail() -> None:
        raise raised[0]

    main.add_command(fail)
    yield raised
    main.commands.pop("fail")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("raised", "code"), RAISED, ids=[type(kind).__name__ for kind, _ in RAISED]
)
def test_an_error_is_text_and_an_exit_code(
    error: list[Exception], raised: Exception, code: int
) -> None:
    error.append(raised)
    result = run("fail")
    assert result.exit_code == code
    assert result.stderr.startswith("Error: ")
    assert type(raised).__name__ in result.stderr
    assert "Next: " in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_says_what_became_of_the_data(error: list[Exception]) -> None:
    error.append(FencedError("Job 'orders' is fenced out.", remedy="leave it stopped."))
    assert run("fail").stderr.splitlines() == [
        "Error: Job 'orders' is fenced out. [FencedError]",
        "Data: No data is lost: the newer driver continues the job.",
        "Next: leave it stopped.",
    ]


def test_verbose_adds_the_traceback(error: list[Exception]) -> None:
    error.append(ConfigError("a"))
    assert "Traceback (most recent call last)" in run("fail", "--verbose").stderr


@pytest.mark.usefixtures("worker")
def test_an_error_that_spark_carried_as_text_is_recognised(error: list[Exception]) -> None:
    carried = OffsetOutOfRangeError("5 records of orders-0 are gone.", remedy="set it.")
    error.append(RuntimeError("".join(traceback.format_exception_only(carried))))
    result = run("fail")
    assert result.exit_code == 3
    assert "5 records of orders-0 are gone. [OffsetOutOfRangeError]" in result.stderr


def test_what_an_error_quotes_cannot_steer_the_terminal(error: list[Exception]) -> None:
    error.append(ConfigError("a \x1b[2J [bold]b[/bold] \r\nError: c", remedy="\x07d"))
    assert run("fail").stderr.splitlines() == [
        "Error: a [2J [bold]b[/bold] Error: c [ConfigError]",
        "Next: d",
    ]


def test_the_version_is_shown() -> None:
    assert run("--version").stdout.startswith("twophase 0.")


def test_every_command_has_an_example_in_its_help() -> None:
    assert isinstance(main, Commands)
    names = main.list_commands(click.Context(main))
    assert {"run", "checkpoints"} <= set(names)
    for name in ("", *names):
        result = run(*filter(None, [name]), "--help")
        assert result.exit_code == 0
        assert f"twophase {name or 'run'} " in result.stdout.partition("Example")[2]


def test_a_command_imports_none_of_the_others() -> None:
    """`twophase run` starts a JVM; what the other commands need would only be
    imported before it.
    """
    asked = (
        "import sys; from twophase.cli.main import main; main(['run', '--help'], "
        "standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "twophase.cli.run" in loaded
    assert not {
        "twophase.cli.repair",
        "twophase.cli.checkpoints",
        "twophase.cli.jobfile.pipeline",
    } & {*loaded}


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("rnu").exit_code == 2


def test_a_missing_job_file_is_a_twophase_error() -> None:
    result = run("run", "/no/such/job.yaml")
    assert result.exit_code == 2
    assert (
        "Cannot read /no/such/job.yaml: No such file or directory. [ConfigError]" in result.stderr
    )


def test_a_command_to_paste_keeps_each_blank_of_a_path(error: list[Exception]) -> None:
    path = "/chk/two  blanks"
    error.append(ConfigError("a", remedy=f"run: chmod g-w {shlex.quote(path)}"))
    [_, then] = run("fail").stderr.splitlines()
    assert shlex.split(then)[-1] == path
