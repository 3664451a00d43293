"""Sinks that commit a checkpoint ahead of the others (`checkpoint.mode` at_least_once).

    A. decide     as soon as one sink has acknowledged, the record SINK_DECIDED(n) has its pieces:
                  from here on they are committed, never aborted
    B. commit     once, before the other sinks have acknowledged; what that leaves is repeated
                  with the commit of the whole checkpoint, or before an attempt is closed
    C. go on      a retry of n, also by a later driver, does not ask this sink to write again, and
                  DECIDED(n) lists its pieces, of the older attempt

So each sink has each row once, and readers may see n in one sink and not in another. The last sink
to acknowledge needs no record of its own: DECIDED(n) follows.

What is done with a sink that is ahead does not depend on the mode of the driver that finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from twophase.contract.committable import Committable
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.commit.proofs import Proofs
from twophase.errors import DeclinedError, fingerprint_of
from twophase.events import Observers, SinkDecided
from twophase.failure_reason import CheckpointFailureReason
from twophase.internals.failpoints import failpoint
from twophase.internals.json_values import canonical_json
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import SinkDecision
from twophase.state.journal.log import JobLog


class SinkDecisions:
    """Decides and commits the sinks of one job that are ahead.

    Args:
        job: the job's name.
        log: its log.
        proofs: the proofs that the log expects in the targets.
        commit_loop: of its sinks.
        observers: notified of decisions.
    """

    def __init__(
        self, job: str, log: JobLog, proofs: Proofs, commit_loop: CommitLoop, observers: Observers
    ) -> None:
        self._job = job
        self._log = log
        self._proofs = proofs
        self._commit_loop = commit_loop
        self._observers = observers
        self._proven: set[tuple[str, int, str]] = set()

    def pieces_of(self, lineage: str, checkpoint: int) -> dict[str, Sequence[Committable]]:
        """Return the pieces of each sink that is decided in a checkpoint, by its name."""
        return {
            one.sink: one.pieces
            for one in self._log.history.ahead
            if one.is_of(lineage, checkpoint)
        }

    def bodies(self) -> list[CompletedCheckpoint]:
        """Return for each sink that is ahead the decided part of its checkpoint."""
        return [self._body(one) for one in self._log.history.ahead]

    def decide(self, pending: PendingCheckpoint, sink: str, pieces: Sequence[Committable]) -> None:
        """Steps A and B.

        Args:
            pending: the attempt that waits for other sinks.
            sink: the sink that has acknowledged.
            pieces: all its pieces, at least one.

        Raises:
            DeclinedError: the record was not written; nothing of the sink is decided.
            FencedError: a newer driver has taken the job over.
            InDoubtError: it may be decided or not.
            LostCommittableError: a piece is proven absent.
            StopJobError: the job must not go on.
        """
        decision = _decision(pending, sink, pieces)
        self._append(decision)
        rows = sum(piece.rows for piece in pieces)
        self._observers(
            SinkDecided(self._job, decision.checkpoint, decision.attempt, sink, len(pieces), rows)
        )
        failpoint("A01")
        body = self._body(decision)
        if self._commit_loop.try_once(body):
            self._prove(decision)
        failpoint("A02")

    def commit(self, loop: CommitLoop | None = None) -> bool:
        """Commit the sinks that are ahead, unless this driver has just seen the proof.

        Args:
            loop: that of a restore, if one is about to begin.

        Returns:
            Whether they are committed; False if the job is stopping before that.

        Raises:
            LostCommittableError: a piece is proven absent.
            StopJobError: the job must not go on.
        """
        for decision in self._log.history.ahead:
            if _key(decision) not in self._proven:
                if not (loop or self._commit_loop).commit(self._body(decision)):
                    return False
                self._prove(decision)
        return True

    def _prove(self, decision: SinkDecision) -> None:
        self._proven &= {_key(one) for one in self._log.history.ahead}
        self._proven.add(_key(decision))

    def _append(self, decision: SinkDecision) -> None:
        what = f"Checkpoint {decision.checkpoint}: the decision on sink {decision.sink!r}"
        try:
            canonical_json(decision)
        except (TypeError, ValueError, RecursionError) as error:
            reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
            raise DeclinedError(
                f"{what} holds a handle that is not JSON: {error}.",
                reason=reason,
                fingerprint=fingerprint_of(error),
            ) from error
        try:
            self._log.append(decision)
        except OSError as error:
            reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
            raise DeclinedError(
                f"{what} could not be written: {error}.",
                reason=reason,
                fingerprint=fingerprint_of(error),
            ) from error

    def _body(self, decision: SinkDecision) -> CompletedCheckpoint:
        return CompletedCheckpoint.of_sink(self._job, decision, self._proofs.decided())


def _decision(pending: PendingCheckpoint, sink: str, pieces: Sequence[Committable]) -> SinkDecision:
    offsets = pending.offsets
    return SinkDecision(
        pending.lineage,
        pending.checkpoint,
        sink,
        pending.attempt,
        offsets.hash,
        offsets.start,
        offsets.end,
        tuple(pieces),
    )


def _key(decision: SinkDecision) -> tuple[str, int, str]:
    return decision.lineage, decision.checkpoint, decision.sink
