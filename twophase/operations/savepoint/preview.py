"""What a start would do: the plan that it would carry out, made without writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenSink
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.orphans import key_of, pieces_of
from twophase.coordinator.recovery.plan import Restore, StartPlan
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.events import Observers
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.fork import check_original
from twophase.operations.savepoint.restore import (
    RESTORE_PATH,
    begun_with,
    restore_of_checkpoint,
)
from twophase.operations.savepoint.savepoint_restore import (
    is_savepoint,
    restore_of_savepoint,
    verified,
)
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.files.storage import ReadOnlyStorage, local_path


@dataclass(frozen=True)
class StartPreview:
    """What a start would do.

    Attributes:
        checkpoint: the restored one; None if none is asked for, or if a lineage has begun with it
            already: then the job goes on.
        plan: the plan.
        lineage: the id of the current lineage of the job's folder; empty if it has none.
        newest: the newest checkpoint of the job's folder, perhaps of an older lineage; None if it
            has none.
        commits: by sink, the pieces that wait there and would be committed.
        aborts: by sink, the pieces that wait there and would be aborted; their rows are read again.
    """

    checkpoint: CompletedCheckpoint | None
    plan: StartPlan
    lineage: str
    newest: CompletedCheckpoint | None
    commits: Mapping[str, Sequence[Committable]]
    aborts: Mapping[str, Sequence[Committable]]


def preview_start(
    job: str,
    sinks: Mapping[str, OpenSink],
    options: JobOptions,
    open_as: Callable[[str, str, str], OpenSink] | None = None,
    *,
    skips_existing: bool = False,
) -> StartPreview:
    """Plan as a start would. The plan of the job's query is not looked at.

    Args:
        job: the job's name.
        sinks: by name.
        options: the job's options.
        open_as: see `Restore`.
        skips_existing: see `Observed`.

    Raises:
        TwoPhaseError: a start would be refused with it.
    """
    root = local_path(options.checkpoint_location)
    storage = ReadOnlyStorage(root, missing_ok=True)
    context = JobContext(job, storage, sinks, options, Observers(), SystemClock())
    context.skips_existing = skips_existing
    restore = restore_of(context)
    planner = StartPlanner(context)
    try:
        asked = restore and replace(restore, open_as=open_as)
        plan = planner.plan(context.log.read(), planner.histories(), asked)
    finally:
        planner.close()
    decided = [*map(context.store.read, plan.commits), *context.sink_decisions.bodies()]
    kept = pieces_of((*plan.adopts, *decided))
    waiting = {name: sink.in_doubt() for name, sink in sinks.items()}
    commits = {
        name: [one for one in found if key_of(one) in kept] for name, found in waiting.items()
    }
    if restore is not None and restore.sink_ahead is SinkAhead.FORK:
        commits |= _pending(restore)
    newest, lineage = context.history.decisions[-1:], context.history.lineage
    return StartPreview(
        restore.checkpoint if restore else None,
        plan,
        lineage.id if lineage else "",
        context.store.read(newest[0]) if newest else None,
        commits,
        {
            name: [one for one in found if key_of(one) not in kept]
            for name, found in waiting.items()
        },
    )


def restore_of(context: JobContext) -> Restore | None:
    """Return the restore that the options ask for; its lineage has no id and no start yet.

    Args:
        context: the job; its sinks are open, or without those that a fork needs.

    Returns:
        None if they ask for none, or if the job has begun a lineage with it.

    Raises:
        TwoPhaseError: it cannot be restored.
    """
    job, options, path = context.job, context.options, context.options.restore_path
    history = context.log.read()
    if path is None or begun_with(job, path, history, options) is not None:
        return None
    if not is_savepoint(path):
        folder, root = local_path(path, RESTORE_PATH), local_path(options.checkpoint_location)
        return restore_of_checkpoint(job, folder, options, root, history.repairs)
    savepoint = verified(job, path, options.sink_ahead)
    restore = restore_of_savepoint(savepoint, options, context.log, context.store)
    check_original(job, restore, context.sinks)
    return restore


def _pending(restore: Restore) -> dict[str, list[Committable]]:
    """Return the pieces of another job that a fork commits, unless that job does before it."""
    found: dict[str, list[Committable]] = {}
    for checkpoint in restore.adopting:
        for name, pieces in checkpoint.committables.items():
            found.setdefault(name, []).extend(pieces)
    return found
