"""The pending checkpoint: one attempt, from its trigger to its decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from twophase.contract.committable import Committable
from twophase.coordinator.commit.state_machine import Action, Phase, Signal, step
from twophase.errors import DeclinedError, StopJobError
from twophase.ids import Attempt, TransactionId
from twophase.state.checkpoints.checkpoint import (
    CompletedCheckpoint,
    FrozenOffsets,
    OperatorStateFields,
)
from twophase.state.journal.entries import Proof

DecideSink = Callable[["PendingCheckpoint", str, Sequence[Committable]], None]
"""Decides a sink ahead of the others, and commits it, given its name and pieces."""


class PendingCheckpoint:
    """Collects the acknowledgements of one attempt. Safe to use from the sinks' threads.

    Args:
        job: the job's name.
        lineage: the lineage id.
        checkpoint: n.
        attempt: its generation and counter.
        offsets: the offset ranges that the micro-batch reads.
        sinks: the names of the sinks it waits for.
        trigger_time_ms: Unix time.
        decided: the pieces of sinks that an earlier attempt has decided ahead of the others. These
            sinks do not write again.
        decide_sink: called for each sink that acknowledges before the last one; without it, no sink
            commits ahead.

    Attributes:
        operator_states: the states snapshotted for it.
        phase: where the attempt stands.
        action: what follows, by the state machine.
        decided: as given; empty if no sink is ahead.
    """

    def __init__(
        self,
        *,
        job: str,
        lineage: str,
        checkpoint: int,
        attempt: Attempt,
        offsets: FrozenOffsets,
        sinks: Sequence[str],
        trigger_time_ms: int,
        decided: Mapping[str, Sequence[Committable]] | None = None,
        decide_sink: DecideSink | None = None,
    ) -> None:
        self.job = job
        self.lineage = lineage
        self.checkpoint = checkpoint
        self.attempt = attempt
        self.offsets = offsets
        self.phase = Phase.PENDING
        self.action = Action.WAIT
        self.operator_states = OperatorStateFields()
        self._sinks = tuple(sinks)
        self._trigger_time_ms = trigger_time_ms
        self.decided = {sink: tuple(pieces) for sink, pieces in (decided or {}).items()}
        self._committables = dict(self.decided)
        self._decide_sink = decide_sink
        self._lock = threading.Lock()
        self._deciding = threading.Lock()
        if self.decided and not self.missing():
            self.signal(Signal.ALL_ACKNOWLEDGED)

    def transaction(self, sink: str) -> TransactionId:
        """Return the transaction of one sink in this attempt."""
        return TransactionId(
            self.job, self.lineage, self.checkpoint, self.attempt, sink, self.offsets.hash
        )

    def acknowledge(self, sink: str, committables: Sequence[Committable]) -> Action:
        """Record all pieces of a sink, and return what to do next.

        Where sinks commit ahead, this one has been tried when this returns, unless it is the last.

        Raises:
            DeclinedError: two pieces have the same subtask, or a piece belongs to another
                transaction (hazard H14); or the decision on the sink could not be written.
            StopJobError: the decision on the sink is in doubt, this driver is fenced, or
                the sink must not go on.
        """
        self._check_pieces(sink, committables)
        with self._deciding:
            action = self._record(sink, committables)
            if action is Action.WAIT and committables and self._decide_sink:
                self._decide_sink(self, sink, committables)
            return action

    def _record(self, sink: str, committables: Sequence[Committable]) -> Action:
        with self._lock:
            if self.phase is Phase.PENDING:
                self._committables[sink] = tuple(committables)
            complete = len(self._committables) == len(self._sinks)
            return self._on(Signal.ALL_ACKNOWLEDGED if complete else Signal.ACKNOWLEDGED)

    def signal(self, signal: Signal) -> Action:
        """Record any other event of the attempt, and return what to do next."""
        with self._lock:
            return self._on(signal)

    def missing(self) -> list[str]:
        """Return the sinks that have not acknowledged yet."""
        with self._lock:
            return [sink for sink in self._sinks if sink not in self._committables]

    def completed(
        self, duration_ms: int, predecessors: tuple[Proof, ...] = ()
    ) -> CompletedCheckpoint:
        """Return the checkpoint to decide; call it only once every sink has acknowledged.

        Args:
            duration_ms: since the trigger.
            predecessors: for each sink its newest checkpoint with pieces before this one.
        """
        if self.phase is not Phase.ACKNOWLEDGED:
            raise StopJobError(
                f"Checkpoint {self.checkpoint} is {self.phase.name}, not complete; "
                "this is a bug in twophase."
            )
        return CompletedCheckpoint(
            job=self.job,
            lineage=self.lineage,
            checkpoint=self.checkpoint,
            attempt=self.attempt,
            trigger_time_ms=self._trigger_time_ms,
            offsets=self.offsets,
            committables=dict(self._committables),
            duration_ms=duration_ms,
            predecessors=predecessors,
            **self.operator_states,
        )

    def _on(self, signal: Signal) -> Action:
        self.phase, self.action = step(self.phase, signal)
        return self.action

    def _check_pieces(self, sink: str, committables: Sequence[Committable]) -> None:
        expected = self.transaction(sink)
        foreign = [piece for piece in committables if piece.transaction != expected]
        indexes = [piece.subtask.index for piece in committables]
        asked = sink in self._sinks and sink not in self.decided
        if foreign or len(set(indexes)) != len(indexes) or not asked:
            raise DeclinedError(
                f"Sink {sink!r} acknowledged {expected} with pieces that do not belong together."
            )
