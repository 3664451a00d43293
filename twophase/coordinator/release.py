"""Gives up the checkpoints of a job that has ended (`checkpoint.externalized_retention`).

    1. close      nothing undecided is left in a sink: no later start would look for it
    2. record     RELEASED: from here on no start goes on from them (I6)
    3. delete     their bodies. Spark's folders are the runtime's

A death before step 2 leaves the job as it was. What a death after it leaves is deleted by the next
lineage.
"""

from __future__ import annotations

from twophase.coordinator.context import JobContext
from twophase.coordinator.recovery import AttemptCloser
from twophase.events import CheckpointsReleased
from twophase.failpoints import failpoint
from twophase.ids import Attempt, AttemptSequence
from twophase.state.entries import Released


def release_checkpoints(
    context: JobContext, attempts: AttemptSequence, closer: AttemptCloser
) -> bool:
    """Release the checkpoints, as the driver that has just ended its work.

    Args:
        context: the job.
        attempts: of that driver.
        closer: likewise.

    Returns:
        Whether they are released; False if there are none, if one must still be committed (I2), or
        if a sink is ahead of the newest one: its rows would be written twice.

    Raises:
        FencedError: another driver has taken the job over.
        InDoubtError: they may be released or not; nothing was deleted.
        Exception: of a sink that could not be cleaned, or of the storage; they are kept.
    """
    history = context.log.history
    newest = history.newest(history.lineage.id) if history.lineage else None
    if newest is None or history.uncommitted() or history.sink_decisions:
        return False
    closer.close_below(Attempt(attempts.generation, attempts.counter + 1))
    failpoint("G01")
    released = Released(newest.lineage, newest.checkpoint, context.clock.unix_ms())
    context.log.append(released)
    failpoint("G02")
    context.store.delete(history.decisions)
    context.observers(CheckpointsReleased(context.job, newest.checkpoint))
    return True
