"""`twophase run --dry-run`: what the start would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import click

from twophase.cli.checkpoint_list import offsets_of
from twophase.cli.display.output import log_to_stderr
from twophase.cli.display.streams import expect_printed
from twophase.cli.display.text import clean, count
from twophase.cli.jobfile.connections import check_connections
from twophase.cli.jobfile.job_file import JobFile
from twophase.cli.repair_setup import open_sinks
from twophase.contract.committable import Committable
from twophase.contract.offset_text import line_text
from twophase.contract.sink import Sink
from twophase.contract.source_entry_points import skips_existing
from twophase.operations.savepoint.fork import open_as
from twophase.operations.savepoint.preview import StartPreview, preview_start
from twophase.options.job_options import JobOptions
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint


def show_start(job: JobFile, sinks: Mapping[str, Sink], *, verbose: bool) -> None:
    """Show what a start of a job would do.

    Raises:
        TwoPhaseError: the start would be refused with this error.
    """
    options = JobOptions.parse(job.options, f"{job.path.name}: options")
    with ExitStack() as stack:
        stack.enter_context(log_to_stderr(verbose=verbose))
        check_connections(sinks)
        opened = open_sinks(stack, job, sinks, verbose=verbose)
        in_name, skips = partial(open_as, sinks), skips_existing(job.legs)
        found = preview_start(job.name, opened, options, in_name, skips_existing=skips)
    for line in _lines(job.name, options.restore_path, found):
        click.echo(clean(line))
    expect_printed()


def _lines(job: str, path: str | None, found: StartPreview) -> list[str]:
    checkpoint = found.checkpoint
    return [
        _begins(job, path, found),
        *_pieces("committed", found.commits),
        *_rewinds(found),
        *_pieces("aborted, and its rows read again", found.aborts),
        *(_sources(checkpoint, found.newest) if checkpoint else _goes_on(found)),
        *(f"Note: {note}." for note in found.plan.notes()),
        "Nothing was written. Whether the plan fits is checked when the job starts.",
    ]


def _begins(job: str, path: str | None, found: StartPreview) -> str:
    """Return what the job would begin or go on with."""
    if (checkpoint := found.checkpoint) is not None:
        what = f"checkpoint {checkpoint.checkpoint} of lineage {checkpoint.lineage}"
        return f"Job {job} would begin a new lineage with {what}, from {path}."
    if path is not None:
        return (
            f"Job {job} would go on: it has begun a lineage with {path}, and restores it once "
            "for each restore.id."
        )
    if not found.lineage:
        return f"Job {job} would begin: its folder has no checkpoint."
    newest = found.newest
    if newest is None or newest.lineage != found.lineage:
        return f"Job {job} would go on in lineage {found.lineage}, which has no checkpoint yet."
    return f"Job {job} would go on after checkpoint {newest.checkpoint} of lineage {found.lineage}."


def _pieces(fate: str, by_sink: Mapping[str, Sequence[Committable]]) -> list[str]:
    waiting = {sink: pieces for sink, pieces in by_sink.items() if pieces}
    if not waiting:
        return [f"Nothing would be {fate.partition(',')[0]}."]
    return [
        f"Of sink {sink} would be {fate}: {count(len(pieces), 'piece')}, "
        f"{count(sum(piece.rows for piece in pieces), 'row')}."
        for sink, pieces in waiting.items()
    ]


def _rewinds(found: StartPreview) -> list[str]:
    lines = []
    for one in found.plan.takes_back:
        whole = f"all checkpoints up to {one.newest}"
        which = whole if one.kept < 0 else f"checkpoints {one.kept + 1} to {one.newest}"
        by = "" if one.name is None else ", by the name of sink {1} of job {0},".format(*one.name)
        lines.append(
            f"Of sink {one.sink}{by} would be taken back: {which} of lineage {one.lineage}."
        )
    return lines


def _sources(checkpoint: CompletedCheckpoint, newest: CompletedCheckpoint | None) -> list[str]:
    """Return where each source would go, from where it is now."""
    end = checkpoint.offsets.end
    position = newest.offsets.end if newest else ()
    now = position if len(position) == len(end) else (None,) * len(end)
    return [
        f"{name} would go from {line_text(before)} to {line_text(after)}."
        for name, before, after in zip(_formats(checkpoint), now, end, strict=False)
    ]


def _goes_on(found: StartPreview) -> list[str]:
    """Return where each source would go on."""
    newest = found.newest
    if newest is None or newest.lineage != found.lineage:
        return []
    return [
        f"{name} would go on from {line_text(line)}."
        for name, line in zip(_formats(newest), newest.offsets.end, strict=False)
    ]


def _formats(checkpoint: CompletedCheckpoint) -> list[str]:
    """Return the format of each source of a checkpoint."""
    formats = [name for name, _ in offsets_of(checkpoint)]
    return formats or ["source"] * len(checkpoint.offsets.end)
