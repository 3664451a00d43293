"""The steps of recovery that repairs take too, and what a restore begins with.

`coordinator.recovery.recovery` has the order of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twophase.contract.sink import OpenSink, SinkHistory
from twophase.errors import FencedError
from twophase.internals.failpoints import failpoint
from twophase.options.job_options import SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import Decision, FenceRecord, Lineage, Proof
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

_TAKE_OVER_TRIES = 20


@dataclass(frozen=True)
class Restore:
    """An explicit restore, for which the store may know less than the sinks.

    Attributes:
        checkpoint: the restored checkpoint.
        lineage: the lineage that begins with it.
        adopting: the checkpoints, up to the restored one, that are decided but not committed in
            their own log; oldest first. They are committed under their own identity (H30), before
            orphans are aborted.
        sink_ahead: what becomes of checkpoints after it in the sinks.
        original: for a fork: the sinks of the pieces in `adopting`, opened in the name of the job
            that has written them. Only `commit` is called.
    """

    checkpoint: CompletedCheckpoint
    lineage: Lineage
    adopting: tuple[CompletedCheckpoint, ...] = ()
    sink_ahead: SinkAhead = SinkAhead.REFUSE
    original: Mapping[str, OpenSink] = field(default_factory=dict)

    @property
    def keep(self) -> Mapping[str, int]:
        """The last checkpoint of each lineage that stays in the sinks."""
        return self.lineage.ancestors

    @property
    def committed(self) -> tuple[Proof, ...]:
        """Return each sink's newest committed checkpoint, by the log that it is from."""
        if self.sink_ahead is SinkAhead.FORK:
            return ()  # of another job
        return self.adopting[0].predecessors if self.adopting else self.checkpoint.proofs


def take_over(
    log: JobLog, sinks: Mapping[str, SinkHistory], check: Callable[[History], None]
) -> int:
    """Step 3a. Return the new generation, higher than all in the log and in the sinks.

    Args:
        log: the job's log; read again here.
        sinks: the history of each sink.
        check: raises if this history must not be continued; runs before the fence is appended.

    Raises:
        FencedError: other drivers keep taking over the job.
    """
    for _ in range(_TAKE_OVER_TRIES):
        history = log.read()
        check(history)
        generation = 1 + max([history.generation, *(sink.generation for sink in sinks.values())])
        try:
            log.append(FenceRecord(generation))
        except FencedError:
            continue
        return generation
    raise FencedError(
        f"Other drivers took the job over {_TAKE_OVER_TRIES} times.",
        remedy="start one driver only.",
    )


def commit_in_order(history: History, commit: Callable[[Decision], bool]) -> int:
    """Step 3b. Return how many checkpoints were committed.

    Strictly in order: a checkpoint that cannot be committed blocks all later ones, because a sink
    may take its high-water mark as proof of everything before (I4).
    """
    committed = 0
    for decision in history.uncommitted():
        if not commit(decision):
            break
        committed += 1
        failpoint("C19")
    return committed
