"""The pages say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import click

from twophase.cli.jobfile.job_file import load_job_file
from twophase.cli.main import main
from twophase.failure_reason import CheckpointFailureReason

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """The table under a heading row, by its first cell."""
    text = (DOCS / page).read_text()
    table = text[text.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in table]
    return {first.strip("`"): rest for first, *rest in cells}


def test_every_failure_reason_is_documented_as_it_is() -> None:
    documented = rows("failure-reasons.md", "reason")
    assert list(documented) == [reason.name for reason in CheckpointFailureReason]
    for reason in CheckpointFailureReason:
        message, counts, raised = documented[reason.name]
        assert (message, counts) == (reason.message, "yes" if reason.counts else "no")
        assert raised.startswith(
            "no: " if "not raised on Spark" in reason.message else ("yes: ", "no: ")
        )


def test_the_reasons_that_are_raised_are_documented_as_raised() -> None:
    modules = (DOCS.parent / "twophase").rglob("*.py")
    raised = {
        name
        for path in modules
        if path.name != "failure_reason.py"
        for name in re.findall(r"CheckpointFailureReason\.([A-Z_]+)", path.read_text())
    }
    assert {
        name
        for name, cells in rows("failure-reasons.md", "reason").items()
        if cells[2].startswith("yes")
    } == raised


def test_every_option_of_every_command_is_documented() -> None:
    page = (DOCS / "cli.md").read_text()
    commands = [_command(name) for name in main.list_commands(click.Context(main))]
    commands += [
        one
        for group in commands
        if isinstance(group, click.Group)
        for one in group.commands.values()
    ]
    assert {"run", "adopt-from-target"} <= {command.name for command in commands}
    for command in commands:
        for parameter in command.params:
            for option in (text for text in parameter.opts if text.startswith("--")):
                assert option in page, f"{command.name} {option}"


def test_the_job_file_of_the_page_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text((DOCS / "cli.md").read_text().partition("```yaml\n")[2].partition("```")[0])
    job = load_job_file(path, {})
    assert (job.name, list(job.sinks)) == ("orders", ["facts"])


def test_the_job_file_of_the_help_is_valid(tmp_path: Path) -> None:
    help_text = _command("run").help or ""
    path = tmp_path / "job.yaml"
    path.write_text(help_text.partition("A job file:\n")[2])
    assert load_job_file(path, {}).trigger == {"processingTime": "10000 milliseconds"}


def _command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None, name
    return found
