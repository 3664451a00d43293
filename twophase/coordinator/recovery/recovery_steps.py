"""The steps of recovery that repairs take too.

`coordinator.recovery.recovery` has the order of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from twophase.contract.sink import SinkHistory
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import FencedError
from twophase.internals.failpoints import failpoint
from twophase.options.job_options import SinkAhead
from twophase.state.journal.entries import FenceRecord
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

T = TypeVar("T")
_TAKE_OVER_TRIES = 20


def take_over(
    log: JobLog,
    sinks: Mapping[str, SinkHistory],
    check: Callable[[History], None],
    above: int = 0,
) -> int:
    """Step 3a. Return the new generation, higher than all in the log and in the sinks.

    Args:
        log: the job's log; read again here.
        sinks: the history of each sink.
        check: raises if this history must not be continued; runs before the fence is appended.
        above: another generation that it has to be higher than.

    Raises:
        FencedError: other drivers keep taking over the job.
    """
    for _ in range(_TAKE_OVER_TRIES):
        history = log.read()
        check(history)
        seen = (sink.generation for sink in sinks.values())
        generation = 1 + max(above, history.generation, *seen)
        try:
            log.append(FenceRecord(generation))
        except FencedError:
            continue
        return generation
    raise FencedError(
        f"Other drivers took the job over {_TAKE_OVER_TRIES} times.",
        remedy="start one driver only.",
    )


def check_generation(job: str, history: History, generation: int) -> None:
    """Check that no other driver has taken the job over since this one has.

    Args:
        job: the job's name.
        history: what the log says now.
        generation: with which this driver has taken it over.

    Raises:
        FencedError: another one has.
    """
    if history.generation != generation:
        raise FencedError(
            f"Job {job!r}: a driver of generation {history.generation} has taken over from "
            f"{generation}.",
            remedy="leave this driver stopped.",
        )


def commit_in_order(waiting: Sequence[T], commit: Callable[[T], bool]) -> int:
    """Step 3b. Return how many of the waiting checkpoints, oldest first, were committed.

    Strictly in order: a checkpoint that cannot be committed blocks all later ones, because a sink
    may take its high-water mark as proof of everything before (I4).
    """
    committed = 0
    for checkpoint in waiting:
        if not commit(checkpoint):
            break
        committed += 1
        failpoint("C19")
    return committed


def own_commit_loop(context: JobContext, restore: Restore | None) -> CommitLoop:
    """Return the loop that commits what the job's own log has decided, before a restore if any."""
    if restore is None or restore.sink_ahead is SinkAhead.FORK:
        return context.commit_loop
    path = restore.lineage.restored_from
    return context.commit_loop.over(context.sinks, path, restore.sink_ahead, adopts=False)


def commit_loop_of(context: JobContext, restore: Restore) -> CommitLoop:
    """Return the loop that commits what a restore adopts: for a fork in the first job's name."""
    sinks, path = restore.original or context.sinks, restore.lineage.restored_from
    return context.commit_loop.over(sinks, path, restore.sink_ahead)
