"""`twophase run --restore PATH --dry-run`: what the restore would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import click

from twophase.cli.checkpoint_list import offsets_of
from twophase.cli.display.output import log_to_stderr
from twophase.cli.display.text import clean, count
from twophase.cli.jobfile.connections import check_connections
from twophase.cli.jobfile.job_file import JobFile
from twophase.cli.repair_setup import open_sinks
from twophase.contract.committable import Committable
from twophase.contract.offset_text import line_text
from twophase.contract.sink import Sink
from twophase.operations.savepoint.fork import open_as
from twophase.operations.savepoint.preview import RestorePreview, preview_restore
from twophase.options.job_options import JobOptions
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint


def show_restore(job: JobFile, sinks: Mapping[str, Sink], *, verbose: bool) -> None:
    """Show what a restore of a job would do.

    Raises:
        click.UsageError: no restore is asked for.
        TwoPhaseError: the restore would be refused with this error.
    """
    options = JobOptions.parse(job.options, f"{job.path.name}: options")
    if options.restore_path is None:
        raise click.UsageError("--dry-run shows a restore: name one with --restore PATH.")
    with ExitStack() as stack:
        stack.enter_context(log_to_stderr(verbose=verbose))
        check_connections(sinks)
        opened = open_sinks(stack, job, sinks, verbose=verbose)
        found = preview_restore(job.name, opened, options, partial(open_as, sinks))
    for line in _lines(job.name, options.restore_path, found):
        click.echo(clean(line))


def _lines(job: str, path: str, found: RestorePreview) -> list[str]:
    checkpoint = found.checkpoint
    if checkpoint is None:
        return [
            (
                f"Job {job} would go on: it has begun a lineage with {path}, and restores it once "
                "for each restore.id."
            ),
            *_pieces("committed", found.commits),
            *_pieces("aborted, and its rows read again", found.aborts),
            "Nothing was written. Whether the plan fits is checked when the job starts.",
        ]
    what = f"checkpoint {checkpoint.checkpoint} of lineage {checkpoint.lineage}"
    return [
        f"Job {job} would begin a new lineage with {what}, from {path}.",
        *_pieces("committed", found.commits),
        *_rewinds(found),
        *_pieces("aborted, and its rows read again", found.aborts),
        *_sources(checkpoint, found.position),
        *(f"Note: {note}." for note in found.plan.notes()),
        "Nothing was written. Whether the plan fits is checked when the job starts.",
    ]


def _pieces(fate: str, by_sink: Mapping[str, Sequence[Committable]]) -> list[str]:
    waiting = {sink: pieces for sink, pieces in by_sink.items() if pieces}
    if not waiting:
        return [f"Nothing would be {fate.partition(',')[0]}."]
    return [
        f"Of sink {sink} would be {fate}: {count(len(pieces), 'piece')}, "
        f"{count(sum(piece.rows for piece in pieces), 'row')}."
        for sink, pieces in waiting.items()
    ]


def _rewinds(found: RestorePreview) -> list[str]:
    lines = []
    for one in found.plan.takes_back:
        whole = f"all checkpoints up to {one.newest}"
        which = whole if one.kept < 0 else f"checkpoints {one.kept + 1} to {one.newest}"
        by = "" if one.name is None else ", by the name of sink {1} of job {0},".format(*one.name)
        lines.append(
            f"Of sink {one.sink}{by} would be taken back: {which} of lineage {one.lineage}."
        )
    return lines


def _sources(checkpoint: CompletedCheckpoint, position: Sequence[str | None]) -> list[str]:
    end = checkpoint.offsets.end
    now = position if len(position) == len(end) else (None,) * len(end)
    formats = [name for name, _ in offsets_of(checkpoint)] or ["source"] * len(end)
    return [
        f"{name} would go from {line_text(before)} to {line_text(after)}."
        for name, before, after in zip(formats, now, end, strict=False)
    ]
