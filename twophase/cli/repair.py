"""`twophase repair`: repairs a job that refuses to start. Shows what it would
do, and asks first.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli.display.text import clean, count
from twophase.cli.jobfile.job_file import JobFile
from twophase.cli.options import verbose_option
from twophase.cli.repair_setup import repair_context, rewrite_context
from twophase.config import JobOptions
from twophase.coordinator.accept_loss import LossPlan, LossRepair
from twophase.coordinator.adopt import AdoptionRepair
from twophase.coordinator.adoption_plan import AdoptionPlan
from twophase.coordinator.clock import SystemClock
from twophase.coordinator.context import JobContext
from twophase.coordinator.rewrite import RewritePlan, RewriteRepair
from twophase.errors import ConfigError
from twophase.protocol.committable import Committable
from twophase.runtime.adopted_offsets import frozen_in
from twophase.runtime.plugin.adopted_query import (
    check_beginning,
    frozen_around,
    is_unlaid,
    lay,
    query_folder,
)
from twophase.runtime.plugin.description import log_folder
from twophase.sources.kafka.starting import LATEST_SENTINEL, Latest, Specific, parse_starting
from twophase.state.entries import Note
from twophase.state.storage import LocalStorage

_BEGAN = (
    "set startingOffsets of every source to where the job began, and run the command again with "
    "--from-starting-offsets."
)
_WIDTH_ELSEWHERE = 200  # not a terminal: a row stays on one line


@click.group()
def repair() -> None:
    """Repair a job that refuses to start.

    The error that the job ends with names the command to use. Each command first shows what it
    would give up, take over or write, and asks; the job's log records who did it, when and why.

    \b
    Examples:
      twophase repair rewrite orders.yaml --checkpoint 41 --sink facts
      twophase repair accept-loss orders.yaml --checkpoint 41 --sink facts
      twophase repair adopt-from-target orders.yaml
    """


def _repair_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        verbose_option,
        click.option("--yes", is_flag=True, help="Do not ask; --reason is required then."),
        click.option("--reason", metavar="TEXT", help="Why, for the job's log."),
        click.option(
            "--checkpoint-location",
            metavar="FOLDER",
            help="The job's folder; sets checkpointLocation.",
        ),
        click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


def _piece_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--sink", required=True, help="The sink that has lost pieces of it.")(
        command
    )
    number = click.IntRange(min=0)
    return click.option("--checkpoint", required=True, type=number, help="The decided checkpoint.")(
        command
    )


@repair.command("rewrite")
@_piece_options
@_repair_options
def rewrite(
    job_file: Path,
    checkpoint: int,
    sink: str,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
    verbose: bool,
) -> None:
    """Write lost pieces of a decided checkpoint again, from the same records of Kafka.

    For LostCommittableError. It begins like every start: it takes the job over, which ends a driver
    that still runs, and commits what it can. Then it shows the pieces that are proven lost in the
    sink, and the offsets to read again. It writes nothing until you confirm. Refused if Kafka no
    longer has the records, and for plans that keep state.

    \b
    Example:
      twophase repair rewrite orders.yaml --checkpoint 41 --sink facts
    """
    _require_reason(reason, yes=yes)
    with rewrite_context(job_file, checkpoint_location, verbose=verbose) as (context, reread):
        repairing = RewriteRepair(context, reread)
        plan = repairing.plan(checkpoint, sink)
        _show(_rewrite(plan, context))
        note = _ask("Write these rows again?", reason, yes=yes)
        repairing.rewrite(plan, note)
    _done("They are written again and committed.", job_file, None)


@repair.command("accept-loss")
@_piece_options
@_repair_options
def accept_loss(
    job_file: Path,
    checkpoint: int,
    sink: str,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
    verbose: bool,
) -> None:
    """Let the job go on without rows that are gone for good.

    For lost pieces of a decided checkpoint (LostCommittableError), and for rows that a target lost
    when it was restored from a backup (TargetChangedError). It begins like every start: it takes
    the job over, so that a driver that is still running ends, and commits what it can. Then it
    shows the rows that are proven lost. It gives nothing up until you confirm.

    \b
    Example:
      twophase repair accept-loss orders.yaml --checkpoint 41 --sink facts
    """
    _require_reason(reason, yes=yes)
    with repair_context(job_file, checkpoint_location, verbose=verbose) as (job, context):
        query = query_folder(_storage(job).root)
        repairing = LossRepair(context)
        plan = repairing.plan(checkpoint, sink)
        _show(_loss(plan, context))
        note = _ask("Give these rows up?", reason, yes=yes)
        repairing.accept(plan, note)
    _done("They are given up.", job_file, query)


@repair.command("adopt-from-target")
@click.option(
    "--from-starting-offsets",
    is_flag=True,
    help="If it is not known where the newest checkpoint ended: go on from the sources' "
    "startingOffsets in JOB.yaml.",
)
@_repair_options
def adopt_from_target(
    job_file: Path,
    from_starting_offsets: bool,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
    verbose: bool,
) -> None:
    """Rebuild the job's log from the proofs in its targets, if its folder is old, damaged or gone.

    A checkpoint that a target has proof of was decided: its pieces that are still pre-committed in
    other sinks are committed, and a new lineage goes on after it. Look for the folder first: a
    backup, another mount, a wrong checkpointLocation. Spark's state is not adopted.

    \b
    Example:
      twophase repair adopt-from-target orders.yaml
    """
    _require_reason(reason, yes=yes)
    with repair_context(job_file, checkpoint_location, verbose=verbose) as (job, context):
        storage = _storage(job)
        query = query_folder(storage.root)
        if query is None:
            adopting = AdoptionRepair(context, frozen_in(storage))
        else:
            adopting = AdoptionRepair(context, frozen_around(query), partial(is_unlaid, query))
        plan = adopting.plan()
        if query is not None:
            check_beginning(query, plan.end)
        ended = f"where checkpoint {plan.checkpoint} ended:"
        begins = [
            ended if plan.checkpoint >= 0 else f"where lineage {plan.lineage} began:",
            *_lines(plan.end),
        ]
        if not plan.end:
            begins = _starting_offsets(job, plan, allowed=from_starting_offsets)
        _show((*_adoption(plan, context.job, begins), *_laid(query, plan.end)))
        note = _ask("Adopt this?", reason, yes=yes)
        lineage = adopting.adopt(plan, note)
        if query is not None:
            lay(query, lineage, note.at_ms)
    _done("The log has adopted it, and a new lineage has begun.", job_file, query)


def _laid(query: Path | None, end: Sequence[str | None]) -> Iterable[str]:
    """Yield lines about what happens to Spark's folder of a query of the plugin form."""
    if query is None:
        return
    yield (
        f"Spark's folder {query} is written again for it; "
        f"what Spark has in it now is kept below {log_folder(query)}."
    )
    if not end:
        yield "Set the same startingOffsets in the query itself."


def _starting_offsets(job: JobFile, plan: AdoptionPlan, *, allowed: bool) -> list[str]:
    """Return lines about where the sources begin by their own options."""
    given = {name: source.options.get("startingOffsets") for name, source in job.sources.items()}
    waiting = [piece for sink in plan.sinks.values() for piece in sink.aborts]
    is_first = plan.is_empty and not waiting and not plan.continues
    if is_first and not any(_begins_at_the_end(source.options) for source in job.sources.values()):
        lines = [
            f"- {name}: {offsets or 'the default of the source'}" for name, offsets in given.items()
        ]
        return ["the startingOffsets of the sources, as a new job does:", *lines]
    if allowed and None not in given.values():
        return [
            (
                "the startingOffsets of the sources. Records before them that are not "
                "in the targets are lost;"
            ),
            "records after them that are in the targets will be there twice:",
            *(f"- {name}: {offsets}" for name, offsets in given.items()),
        ]
    raise _not_known(job, plan, len(waiting))


def _not_known(job: JobFile, plan: AdoptionPlan, waiting: int) -> ConfigError:
    """Return the error for sources whose beginning is not known, and was not given by the operator.

    Args:
        job: the job file.
        plan: a plan without end offsets.
        waiting: how many pieces the next start aborts.
    """
    if plan.is_empty and not waiting:
        return ConfigError(
            f"{job.path.name}: the targets have no rows of this job, and nothing tells up to where "
            "a driver has read before. Records since then may be skipped, such as with "
            "startingOffsets latest. Nothing was written.",
            remedy=_BEGAN,
        )
    if plan.is_empty:
        return ConfigError(
            f"{job.path.name}: the targets have no rows of this job, "
            f"but {count(waiting, 'piece')} that {'was' if waiting == 1 else 'were'} "
            "pre-committed. Nothing tells where they were read from; the next start aborts them, "
            "and their records have to be read again. Nothing was written.",
            remedy=_BEGAN,
        )
    if not plan.lineage:
        return ConfigError(
            f"{job.path.name}: the targets have rows of several lineages of this job, and nothing "
            f"tells which is the newest: {_lineages(plan)}. Nothing was written.",
            remedy="make sure that checkpointLocation names the newest folder of the job. Then "
            "find out up to which offsets the targets have the records, such as from their "
            "columns, or from what Spark noted of that checkpoint, if that is of the lineage that "
            "you know to be the newest (spark/<lineage>/offsets; in the plugin form `offsets` "
            "beside `metadata`, which names the lineage); set startingOffsets of every source to "
            "that, and run the command again with --from-starting-offsets.",
        )
    return ConfigError(
        f"{job.path.name}: the targets have rows of this job, and nothing in its folder tells "
        "where the newest of them were read from. Nothing was written.",
        remedy="find out up to which offsets the targets have the records, "
        "such as from their columns, set startingOffsets of every source to that, and run the "
        "command again with --from-starting-offsets.",
    )


def _begins_at_the_end(options: Mapping[str, str]) -> bool:
    """Return whether a source begins, in any partition, after the records that were
    written before its start.
    """
    if options.get("startingOffsets.fallback", "").strip().lower() == "latest":
        return True
    try:
        starting = parse_starting(options.get("startingOffsets"))
    except ValueError:
        return False  # the job's start reports it
    match starting:
        case Latest():
            return True
        case Specific(listed):
            return any(offset == LATEST_SENTINEL for _, offset in listed)
        case _:
            return False


def _adoption(plan: AdoptionPlan, job: str, begins: Sequence[str]) -> Iterable[Table | str]:
    newest = f"lineage {plan.lineage} up to checkpoint {plan.checkpoint}"
    if not plan.lineage or plan.checkpoint < 0:
        newest = _lineages(plan)
    if plan.is_empty:
        yield (
            f"Job {job}: nothing is to be adopted: a driver has taken the targets over, "
            "and none has rows of the job."
        )
    else:
        yield f"Job {job}: to be adopted: {newest}"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "sink",
        "proven by the target",
        "to be committed",
        "to be aborted by the next start",
    ):
        table.add_column(name, overflow="fold")
    waiting = [piece for sink in plan.sinks.values() for piece in (*sink.commits, *sink.aborts)]
    several = len({piece.transaction.lineage for piece in waiting}) > 1
    for name, sink in plan.sinks.items():
        proven = ", ".join(
            f"{lineage[:8]} up to {number}" for lineage, number in sink.committed.items()
        )
        table.add_row(
            name,
            proven or "nothing",
            *(_pieces(pieces, several) for pieces in (sink.commits, sink.aborts)),
        )
    yield table
    for name in plan.sinks:
        if plan.lineage and not plan.has_newest(name):
            yield (
                f"Sink {name} has nothing of checkpoint {plan.checkpoint}: "
                "it had no rows in it, or they are lost."
            )
    if not plan.lineage and not plan.is_empty:
        yield (
            "Nothing tells which of these lineages is the newest, "
            "nor which sink has nothing of its newest checkpoint."
        )
    for folder in plan.gave_up:
        yield (
            f"{folder} cannot be read: which pieces it lists is not known; "
            "those that are there are adopted as above."
        )
    if not plan.is_empty:
        yield (
            "Nothing tells whether a sink has all pieces of the newest checkpoint: "
            "compare its rows if in doubt."
        )
    yield f"The new lineage begins at {begins[0]}"
    yield from begins[1:]


def _lineages(plan: AdoptionPlan) -> str:
    """Return text that names every lineage of which something is adopted."""
    return ", ".join(
        f"lineage {one} up to checkpoint {last}"
        for one, last in plan.ancestors.items()
        if last >= 0
    )


def _pieces(pieces: Sequence[Committable], with_lineage: bool) -> str:
    """Return the pieces of one table cell, with the start of their lineage if pieces of
    several lineages wait.
    """
    shown = (
        f"{one.transaction.lineage[:8] + ' ' if with_lineage else ''}{one.transaction.checkpoint}: "
        f"{one.transaction.attempt}/{one.subtask}"
        for one in pieces
    )
    return ", ".join(shown) or "-"


def _rewrite(plan: RewritePlan, context: JobContext) -> Iterable[Table | str]:
    loss = plan.loss
    yield from _lost_pieces(loss, context.job)
    what = f"{count(loss.rows, 'row')} in {count(len(loss.lost), 'piece')}"
    yield (
        f"To be written again: {what}, to {context.sinks[loss.sink].target()}, from these records:"
    )
    yield from _lines(plan.ranges)


def _loss(plan: LossPlan, context: JobContext) -> Iterable[Table | str]:
    target = context.sinks[plan.sink].target()
    yield from _lost_pieces(plan, context.job)
    rows = f"{count(plan.rows, 'row')} in {count(len(plan.lost), 'piece')}"
    if plan.gap:
        rows = (
            f"all rows of these checkpoints; the newest has {rows}"
            if plan.lost
            else "all rows of these checkpoints"
        )
    yield f"To be given up: {rows}, missing in {target} from then on. Other sinks keep theirs."
    yield "They are among the records from"
    yield from _lines(plan.start)
    yield "to"
    yield from _lines(plan.end)


def _lost_pieces(plan: LossPlan, job: str) -> Iterable[Table | str]:
    yield f"Job {job}, lineage {plan.lineage}, checkpoint {plan.number}, sink {plan.sink}"
    if plan.gap:
        yield plan.gap
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("piece", "rows", "state"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for piece, evidence in plan.lost:
        table.add_row(
            str(piece.subtask), f"{piece.rows:,}", Text(clean(f"lost: {evidence}"), style="red")
        )
    for piece in plan.kept:
        table.add_row(str(piece.subtask), f"{piece.rows:,}", Text("committed", style="green"))
    if table.row_count:
        yield table


def _lines(lines: Sequence[str | None]) -> list[str]:
    return [f"- {line or 'the beginning'}" for line in lines] or [
        "- an offset that the log no longer has"
    ]


def _require_reason(reason: str | None, *, yes: bool) -> None:
    if yes and not reason:
        raise click.UsageError("--yes asks nothing, so it needs --reason.")


def _show(lines: Iterable[Table | str]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_ELSEWHERE)
    for line in lines:
        console.print(Text(clean(line)) if isinstance(line, str) else line, soft_wrap=True)


def _ask(question: str, reason: str | None, *, yes: bool) -> Note:
    """Ask the operator; raises click.Abort if the answer is no, or there is no answer."""
    if not yes:
        click.confirm(question, abort=True)
    why = reason or click.prompt("Why (for the job's log)")
    return Note(f"{getpass.getuser()}@{socket.gethostname()}", SystemClock().unix_ms(), clean(why))


def _storage(job: JobFile) -> LocalStorage:
    """Return the job's folder."""
    return LocalStorage(JobOptions.parse(job.options, job.path.name).checkpoint_location)


def _done(what: str, job_file: Path, query: Path | None) -> None:
    click.echo(
        f"{what} {f'Start the job: twophase run {job_file}' if query is None else 'Start the query.'}"  # noqa: E501
    )
