"""A rewind removes from the sinks what they committed after a restored checkpoint (H28).

Before step 3a of a start each sink that is ahead, or is bound to be, says that it can. Steps 3a to
3c are those of every start (`coordinator.recovery.recovery`): all that is decided is committed
(I2). Then, in step 3d:

    - check     again: behind the fences no driver adds anything any more
    - record    REWINDING: a death leaves some sinks ahead, or one with a part of its rows, and no
                start goes on from there without the rewind
    - rewind    sink by sink
    - ask       the sinks again: none is ahead

The record LINEAGE, which follows, ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from twophase.contract.sink import CanRewind, OpenSink, SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.recovery.recovery_steps import Restore
from twophase.errors import RestoreRefusedError
from twophase.events import SinkRewound
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import Rewinding


def check_rewind(
    job: str,
    restore: Restore,
    sinks: Mapping[str, OpenSink],
    remembered: Mapping[str, SinkHistory],
    uncommitted: Sequence[CompletedCheckpoint],
) -> None:
    """Check each sink, before the fence and behind it. Nothing is written.

    Args:
        job: the job's name.
        restore: with the policy `rewind`.
        sinks: by name.
        remembered: the history of each sink.
        uncommitted: the checkpoints that the job's log still has to commit.

    Raises:
        RestoreRefusedError: a sink that is ahead cannot rewind; names it and why.
    """
    ahead = {name for name, *_ in ahead_of(restore.keep, remembered)}
    for body in uncommitted:
        if body.checkpoint > restore.keep.get(body.lineage, -1):
            ahead |= {name for name, pieces in body.committables.items() if pieces}
    for name in sinks:
        if name in ahead:
            _able(job, name, sinks[name], restore).check_rewind(restore.keep)


def rewind(context: JobContext, restore: Restore, attempt: Attempt) -> None:
    """Step 3d, behind the fences and the check.

    Args:
        context: the job.
        restore: checked.
        attempt: the fence of every sink.

    Raises:
        RestoreRefusedError: a sink cannot rewind after all.
        FencedError: a newer driver has taken the job over.
        Exception: of a sink. The next start with the same options calls it again.
    """
    keep, sinks, history = restore.keep, context.sinks, context.history
    ahead = [*ahead_of(keep, _histories(sinks))]
    later = [one for one in history.decisions if one.checkpoint > keep.get(one.lineage, -1)]
    bound = later or history.ahead_of(keep)
    if not ahead and not bound and history.rewinding is None:
        return
    context.log.append(Rewinding(restore.lineage.restored_from, keep))
    failpoint("S11")
    for sink in dict.fromkeys(name for name, *_ in ahead):
        _able(context.job, sink, sinks[sink], restore).rewind(keep, attempt)
        for name, lineage, newest in ahead:
            if name == sink:
                kept = keep.get(lineage, -1)
                context.observers(SinkRewound(context.job, sink, lineage, newest, kept))
        failpoint("S12")
    for name, lineage, newest in ahead_of(keep, _histories(sinks)):
        raise RestoreRefusedError(
            f"Job {context.job!r}: sink {name!r} still has proof of checkpoint {newest} of lineage "
            f"{lineage} after it was rewound to {restore.lineage.restored_from}. No lineage has "
            "begun.",
            remedy="find out who else writes to it under this job's name, then start again with "
            "the same options.",
        )
    failpoint("S13")


def ahead_of(
    keep: Mapping[str, int], remembered: Mapping[str, SinkHistory]
) -> Iterator[tuple[str, str, int]]:
    """Yield each sink and lineage that is ahead, with its newest committed checkpoint."""
    for name, memory in remembered.items():
        for lineage, newest in memory.committed.items():
            if newest > keep.get(lineage, -1):
                yield name, lineage, newest


def _able(job: str, name: str, sink: OpenSink, restore: Restore) -> CanRewind:
    if isinstance(sink, CanRewind):
        return sink
    raise RestoreRefusedError(
        f"Job {job!r}: cannot rewind to {restore.lineage.restored_from}: sink {name!r} is ahead of "
        "it, and sinks of its kind cannot remove committed rows. Nothing was written.",
        remedy="restore from the newest checkpoint; or begin another job with a savepoint, under "
        "another name: restore.sink_ahead=fork.",
    )


def _histories(sinks: Mapping[str, OpenSink]) -> dict[str, SinkHistory]:
    return {name: sink.history() for name, sink in sinks.items()}
