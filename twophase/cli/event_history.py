"""`twophase checkpoints --history`: the events of a job's last hours, from its folder."""

from __future__ import annotations

import json

import click
from rich.text import Text

from twophase.cli.checkpoint_list import job_in
from twophase.cli.display.console import table_console
from twophase.cli.display.sentences import sentence
from twophase.cli.display.streams import expect_printed
from twophase.cli.display.text import clean, count, local_time
from twophase.engine.progress import Progress, apply
from twophase.events import CheckpointCommitted, Event
from twophase.state.files.event_file import read_events
from twophase.state.files.storage import ReadOnlyStorage

_PARTITIONS = 6


def show_history(folder: str, *, as_json: bool) -> None:
    """Print the events, oldest first: a sentence each, or as JSON, one object a line.

    Args:
        folder: the job's `checkpointLocation`.
        as_json: print JSON.

    Raises:
        ConfigError: there is no such folder, or it is not that of a job.
    """
    storage = ReadOnlyStorage(folder)
    console, progress, lines, damaged = table_console(), Progress(), 0, 0
    for past in read_events(storage):
        lines += 1
        if past is None:
            damaged += 1
        elif as_json:
            click.echo(json.dumps(past.line))
        else:
            progress = apply(progress, past.event, past.at_ms / 1000)
            text = f"{local_time(past.at_ms)} {clean(_sentence(past.event, progress))}"
            console.print(Text(text), soft_wrap=True)
    if not lines:
        job_in(storage)  # else the folder is a job's, whatever its log says
    if damaged:
        left = "left out: a driver was killed while it wrote, or a newer version of twophase wrote"
        click.echo(f"{count(damaged, 'line')} {left} it.", err=True)
    expect_printed()


def _sentence(event: Event, progress: Progress) -> str:
    text = sentence(event, progress)
    if isinstance(event, CheckpointCommitted) and any(event.offsets):
        text += f"; at {'; '.join(map(_shortened, event.offsets))}"
    return text


def _shortened(offsets: str) -> str:
    shown = offsets.split(" ")
    left = len(shown) - _PARTITIONS
    return " ".join(shown[:_PARTITIONS]) + (f" and {left} more" if left > 0 else "")
