"""`--log-format json`: whatever is printed is one JSON object a line."""

from __future__ import annotations

import json
import logging
from typing import Any

import click
import pytest
from click.testing import CliRunner

from twophase.cli.display.console import JobConsole
from twophase.cli.display.json_view import JsonView
from twophase.cli.display.output import log_lines
from twophase.cli.main import Commands
from twophase.cli.options import log_format_option, verbose_option
from twophase.errors import ConfigError, FencedError
from twophase.events import CheckpointCommitted, CheckpointTriggered, CommitRetried, JobStopped
from twophase.ids import Attempt

AGAIN = "run the command again with --verbose for the traceback."
HOSTILE = 'a "quoted"\nline\x1b[2J :warning: \u2028[bold]'


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_events_lines_and_log_records_are_objects(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView("orders", JobConsole(highlight=False, width=20))
    log = log_lines(
        view.print_log, verbose=False, events_are_shown=True, formatter=view.log_formatter
    )
    with view, log:
        view(CheckpointTriggered("orders", 0, Attempt(1, 1)))
        view(CheckpointCommitted("orders", 0, 1000, ("",), 1.25, 0.023, {"facts": 1000}))
        view(CommitRetried("orders", 1, "facts", HOSTILE, 1, 0.0, 0.2))
        view.print_line(HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("elsewhere").exception("It %s", "failed")
    out, err = capsys.readouterr()
    committed, retried, summary = parsed(out)
    assert (committed["level"], committed["event"], committed["rows"]) == (
        "INFO",
        "CheckpointCommitted",
        1000,
    )
    assert committed["message"] == ("checkpoint 0 committed: 1,000 rows in 1.25 s (protocol 23 ms)")
    assert (retried["level"], retried["job"], retried["checkpoint"]) == ("WARNING", "orders", 1)
    assert ":warning:" in retried["message"]
    assert "1 checkpoint" in summary["message"]
    line, record = parsed(err)
    assert line["message"] == 'a "quoted" line [2J :warning: [bold]'
    assert (record["logger"], record["level"], record["message"]) == (
        "elsewhere",
        "ERROR",
        "It failed",
    )
    assert "ValueError" in record["traceback"]


@click.group(cls=Commands)
def command() -> None:
    """As `twophase`."""


@command.command()
@log_format_option
@verbose_option
@click.option("--how", type=int)
def fail(as_json: bool, how: int) -> None:
    """End with an error."""
    assert as_json
    errors: list[Exception] = [
        ConfigError("Option x is 5.", remedy="set it to 6."),
        FencedError("Job 'orders' is fenced."),
        ExceptionGroup("two", [ConfigError("One."), ConfigError("Two.")]),
        RuntimeError("boom"),
    ]
    raise errors[how]


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        (0, 2, [("ConfigError", "Option x is 5.", "set it to 6.")]),
        (1, 4, [("FencedError", "Job 'orders' is fenced.", None)]),
        (2, 2, [("ConfigError", "One.", None), ("ConfigError", "Two.", None)]),
        (
            3,
            1,
            [("RuntimeError", "boom", "run the command again with --verbose for the traceback.")],
        ),
    ],
)
def test_the_error_that_ends_the_command_is_an_object(
    how: int, code: int, said: list[tuple[str, str, str | None]]
) -> None:
    result = CliRunner().invoke(command, ["fail", "--log-format", "json", "--how", str(how)])
    found = parsed(result.stderr)
    assert result.exit_code == code
    assert [(one["error"], one["message"], one.get("next")) for one in found] == said
    assert {one["level"] for one in found} == {"ERROR"}
    assert all(one["exit_code"] in (1, 2, 4) for one in found)


def test_the_end_of_a_job_is_told_with_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    with JsonView("orders", JobConsole(highlight=False)) as view:
        view(JobStopped("orders", "no space"))
    stopped, summary = parsed(capsys.readouterr().out)
    assert (stopped["level"], stopped["cause"]) == ("WARNING", "no space")
    assert summary["message"].startswith("failed after")
