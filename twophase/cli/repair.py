"""`twophase repair`: repairs a job that refuses to start, after it has shown the plan and asked."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from twophase.cli.display.console import print_lines
from twophase.cli.display.text import clean
from twophase.cli.jobfile.job_file import JobFile
from twophase.cli.jobfile.mistakes import Mistakes
from twophase.cli.jobfile.sink_types import make_sinks
from twophase.cli.options import (
    checkpoint_location_option,
    combined,
    is_verbose,
    job_file_argument,
    sink_ahead_option,
    verbose_option,
)
from twophase.cli.repair_beginning import confirmed, starting_offsets
from twophase.cli.repair_display import (
    abandon_lines,
    adoption_lines,
    loss_lines,
    missed_lines,
    offset_lines,
    release_lines,
    rewrite_lines,
)
from twophase.cli.repair_setup import repair_context, rewrite_context
from twophase.contract.sink import CompletesPartitions
from twophase.coordinator.commit.context import JobContext
from twophase.errors import ConfigError
from twophase.internals.clock import SystemClock
from twophase.operations.repair.abandon_rewind import RewindRepair, rewind_named
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.adoption_plan import AdoptionPlan
from twophase.operations.repair.release import ReleaseRepair
from twophase.operations.repair.rewrite import RewriteRepair
from twophase.options.job_options import JobOptions
from twophase.spark.folder.adopted_offsets import frozen_in
from twophase.spark.folder.query_folder import log_folder
from twophase.spark.plugin.adopted_query import (
    check_beginning,
    frozen_around,
    is_unwritten,
    query_folder,
    write_folder,
)
from twophase.state.files.folder_rights import owner_named
from twophase.state.files.storage import LocalStorage, local_path
from twophase.state.journal.entries import Note
from twophase.state.journal.log import JobLog, job_of
from twophase.wording import worded

_TAKE_OUT_RESTORE_PATH = " Take restore.path out of the job file."


@click.group()
def repair() -> None:
    """Repair a job that refuses to start.

    The error that the job ends with names the command to use. Each command first shows what it
    would give up, take over or write, and asks. The job's log records who did it, when and why;
    not of complete-partitions, which gives nothing up.

    \b
    Examples:
      twophase repair rewrite orders.yaml --checkpoint 41 --sink facts
      twophase repair accept-loss orders.yaml --checkpoint 41 --sink facts
      twophase repair adopt-from-target orders.yaml
      twophase repair abandon-rewind orders.yaml
      twophase repair complete-partitions orders.yaml --sink lake
      twophase repair release-topic orders.yaml --topic orders-2024
    """


_repair_options = combined(
    verbose_option,
    click.option("--yes", is_flag=True, help="Do not ask; --reason is required then."),
    click.option("--reason", metavar="TEXT", help="Why, for the job's log."),
    checkpoint_location_option,
    job_file_argument,
)
_piece_options = combined(
    click.option("--sink", required=True, help="The sink that has lost pieces of it."),
    click.option(
        "--checkpoint", required=True, type=click.IntRange(min=0), help="The decided checkpoint."
    ),
)


@repair.command("rewrite")
@_piece_options
@_repair_options
@owner_named()
def rewrite(
    job_file: Path,
    checkpoint: int,
    sink: str,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
) -> None:
    """Write lost pieces of a decided checkpoint again, from the same records.

    For LostCommittableError. It begins like every start: it takes the job over, which ends a driver
    that still runs, and commits what it can. Then it shows the pieces that are proven lost in the
    sink, and the offsets to read again. It writes nothing until you confirm. Refused if their
    source no longer has the records, and for plans that keep state.

    \b
    Example:
      twophase repair rewrite orders.yaml --checkpoint 41 --sink facts
    """
    _require_reason(reason, yes=yes)
    with rewrite_context(job_file, checkpoint_location, verbose=is_verbose()) as (context, reread):
        repairing = RewriteRepair(context, reread)
        plan = repairing.plan(checkpoint, sink)
        print_lines(rewrite_lines(plan, context))
        note = _ask("Write these rows again?", reason, yes=yes)
        repairing.rewrite(plan, note)
    _done("The rows are written again and committed.")


@repair.command("accept-loss")
@_piece_options
@click.option(
    "--restore",
    "restore_path",
    metavar="PATH",
    help="The savepoint whose restore has found the loss, as for twophase run.",
)
@sink_ahead_option
@_repair_options
@owner_named()
def accept_loss(
    job_file: Path,
    checkpoint: int,
    sink: str,
    restore_path: str | None,
    sink_ahead: str | None,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
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
    restore = {"restore.path": restore_path, "restore.sink_ahead": sink_ahead}
    setup = repair_context(job_file, checkpoint_location, restore, verbose=is_verbose())
    with setup as (job, context):
        query = query_folder(_storage(job).root)
        repairing = LossRepair(context, make_sinks(job, Mistakes(job_file.name)))
        plan = repairing.plan(checkpoint, sink)
        print_lines(loss_lines(plan, context))
        note = _ask("Give these rows up?", reason, yes=yes)
        repairing.accept(plan, note)
    flags = {"--restore": restore_path, "--sink-ahead": sink_ahead}
    _done("The rows are given up.", query, flags)


@repair.command("adopt-from-target")
@click.option(
    "--from-starting-offsets",
    is_flag=True,
    help="If it is not known where the newest checkpoint ended: go on from the sources' "
    "startingOffsets in JOB.yaml.",
)
@_repair_options
@owner_named()
def adopt_from_target(
    job_file: Path,
    from_starting_offsets: bool,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
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
    with repair_context(job_file, checkpoint_location, verbose=is_verbose()) as (job, context):
        storage = _storage(job)
        query = query_folder(storage.root)
        adopting = _adoption(context, storage, query)
        plan = adopting.plan()
        if plan.missed:
            print_lines(missed_lines(plan, context.job))
        else:
            if query is not None:
                check_beginning(query, plan.end)
            begins = _begins(job, plan, allowed=from_starting_offsets)
            print_lines(
                (*adoption_lines(plan, context.job, begins), *_folder_lines(query, plan.end))
            )
        note = _ask("Adopt this?", reason, yes=yes)
        starting = () if plan.end or plan.missed else confirmed(job)
        lineage = adopting.adopt(plan, note, starting)
        if query is not None and lineage is not None:
            write_folder(query, lineage, note.at_ms)
    what = "and a new lineage has begun" if lineage else "and goes on in its own lineage"
    then = _TAKE_OUT_RESTORE_PATH if context.options.restore_path else ""
    _done(f"The log has adopted it, {what}.{then}", query)


@repair.command("abandon-rewind")
@click.option(
    "--begun-in",
    metavar="FOLDER",
    help="The checkpointLocation in which the rewind has begun, if it is not the job's own.",
)
@click.option(
    "--newest-folder-gone",
    is_flag=True,
    help="The job's newest folder is gone for good: give the rewind up for an older one.",
)
@click.option(
    "--restore",
    "restore_path",
    metavar="PATH",
    help="What the rewind goes back to, if the folder in which it has begun is gone for good.",
)
@_repair_options
@owner_named()
def abandon_rewind(
    job_file: Path,
    begun_in: str | None,
    newest_folder_gone: bool,
    restore_path: str | None,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
) -> None:
    """Give up a rewind that has begun and cannot be finished.

    For RestoreRefusedError and SourceLossError that name it: a sink can no longer take its rows
    back, or a source can no longer read what would be written again. It takes the job over, so
    that a driver that is still rewinding ends. Then it shows which sinks still have everything, and
    which rows are gone from the others. It gives nothing up until you confirm. The job goes on
    after its newest checkpoint, without the rows that are gone.

    \b
    Example:
      twophase repair abandon-rewind orders.yaml
    """
    _require_reason(reason, yes=yes)
    restore = {"restore.path": restore_path, "restore.sink_ahead": restore_path and "rewind"}
    setup = repair_context(job_file, checkpoint_location, restore, verbose=is_verbose())
    with setup as (job, context):
        elsewhere = _log_of(begun_in, context.job) if begun_in else None
        declared = make_sinks(job, Mistakes(job_file.name))
        named = rewind_named(context) if restore_path else None
        repairing = RewindRepair(
            context, declared, elsewhere, named=named, newest_is_gone=newest_folder_gone
        )
        plan = repairing.plan()
        print_lines(abandon_lines(plan, context))
        note = _ask("Give the rewind up?", reason, yes=yes)
        repairing.abandon(plan, note)
    _done(f"The rewind is given up.{_TAKE_OUT_RESTORE_PATH}")


@repair.command("complete-partitions")
@click.option("--sink", required=True, help="The sink with partitions that wait.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@verbose_option
@checkpoint_location_option
@job_file_argument
@owner_named()
def complete_partitions(
    job_file: Path, sink: str, checkpoint_location: str | None, yes: bool
) -> None:
    """Show readers the partitions that wait for a watermark, when no row will raise it any more.

    For a stream that has ended, and for partitions of a far future. Stop the job first. It lists
    the partitions, and completes none until you confirm. Unlike the others, it writes nothing into
    the job's log.

    \b
    Example:
      twophase repair complete-partitions orders.yaml --sink lake
    """
    with repair_context(job_file, checkpoint_location, verbose=is_verbose()) as (_, context):
        opened = context.sinks.get(sink)
        if opened is None or not isinstance(opened, CompletesPartitions):
            raise ConfigError(
                f"Job {context.job} has no sink {sink!r} that completes partitions.",
                remedy="name a Hive sink of the job file.",
            )
        waiting = opened.waiting_partitions()
        print_lines(waiting or ["No partition waits."])
        if waiting:
            if not yes:
                click.confirm("Complete these partitions?", abort=True)
            opened.complete_partitions(waiting)
            click.echo(f"Completed: {len(waiting)}.")


@repair.command("release-topic")
@click.option(
    "--topic", "topics", metavar="NAME", required=True, multiple=True, help="May be repeated."
)
@click.option("--dry-run", is_flag=True, help="Show what would be given up, and write nothing.")
@_repair_options
@owner_named()
def release_topic(
    job_file: Path,
    topics: tuple[str, ...],
    checkpoint_location: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Let the job go on without a topic that was deleted or created again, or is not read any more.

    For PartitionVanishedError, TopicRecreatedError, and the ConfigError of a topic that is no
    longer subscribed. It shows how far the job has read the topic. It gives nothing up until you
    confirm. The job goes on in its folder, with its state. A topic that was created again is then
    read from its first record. One that is subscribed again is read from where the job has left it.

    \b
    Example:
      twophase repair release-topic orders.yaml --topic orders-2024
    """
    _require_reason(reason, yes=yes and not dry_run)
    with repair_context(job_file, checkpoint_location, verbose=is_verbose()) as (job, context):
        root = _storage(job).root
        query = query_folder(root)
        repairing = ReleaseRepair(context, job.legs, lambda one: query or root / "spark" / one)
        plan = repairing.plan(topics)
        print_lines(release_lines(plan, context.job))
        if dry_run:
            click.echo("Nothing was written.")
            return
        note = _ask("Go on without this?", reason, yes=yes)
        repairing.release(plan, note)
    _done("The topics are released.", query)


def _log_of(folder: str, job: str) -> JobLog:
    """Return the log of another folder of a job."""
    root = local_path(folder, "--begun-in")
    if not root.is_dir() or job_of(LocalStorage(root)) != job:
        raise ConfigError(
            f"{root} is not a folder of job {job!r}. Nothing was written.",
            remedy="name the checkpointLocation that the restore was started with.",
        )
    return JobLog(LocalStorage(root), job)


def _adoption(context: JobContext, storage: LocalStorage, query: Path | None) -> AdoptionRepair:
    if query is None:
        return AdoptionRepair(context, frozen_in(storage))
    return AdoptionRepair(context, frozen_around(query), partial(is_unwritten, query))


def _begins(job: JobFile, plan: AdoptionPlan, *, allowed: bool) -> list[str]:
    """Return lines about where the new lineage begins."""
    if not plan.end:
        return starting_offsets(job, plan, allowed=allowed)
    ended = f"where checkpoint {plan.checkpoint} ended:"
    began = f"where lineage {plan.lineage} began:"
    return [ended if plan.checkpoint >= 0 else began, *offset_lines(plan.end)]


def _folder_lines(query: Path | None, end: Sequence[str | None]) -> Iterable[str]:
    """Yield lines about what happens to Spark's folder of a query of the plugin form."""
    if query is None:
        return
    yield (
        f"Spark's folder {query} will be rewritten to match; "
        f"its present content is kept below {log_folder(query)}."
    )
    if not end:
        yield "Set the same startingOffsets on the query itself: with others it is refused."


def _require_reason(reason: str | None, *, yes: bool) -> None:
    if yes and not reason:
        raise click.UsageError("--yes skips the question, so it needs --reason.")


def _ask(question: str, reason: str | None, *, yes: bool) -> Note:
    """Ask the operator; raises click.Abort if the answer is no, or there is no answer."""
    if not yes:
        click.confirm(question, abort=True)
    why = reason or click.prompt("Why (for the job's log)")
    return Note(f"{_account()}@{socket.gethostname()}", SystemClock().unix_ms(), clean(why))


def _account() -> str:
    """Return the name of the account, or its number: in a container it may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as of Python 3.13 the latter
        return str(os.getuid())


def _storage(job: JobFile) -> LocalStorage:
    """Return the job's folder."""
    return LocalStorage(JobOptions.parse(job.options, job.path.name).checkpoint_location)


def _done(
    what: str, query: Path | None = None, flags: Mapping[str, str | None] | None = None
) -> None:
    given = [f" {flag} {shlex.quote(value)}" for flag, value in (flags or {}).items() if value]
    run = "".join(("twophase run JOB.yaml", *given))
    click.echo(f"{what} {f'Start the job: {worded(run)}' if query is None else 'Start the query.'}")
