"""Phase 2: commit a decided checkpoint in every sink, and repeat until each piece
is proven committed.

A decided checkpoint is never aborted (I2). A sink that cannot commit blocks the job: the others
commit, this one is retried with back-off, and every retry is an event (hazards H15, H37). Even when
a sink's error stops the job, the other sinks commit first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from twophase.coordinator.clock import Clock
from twophase.coordinator.proofs import knows
from twophase.errors import (
    ConfigError,
    LostCommittableError,
    PreflightError,
    StopJobError,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.events import CommitRetried, Observers, PieceCommitted
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.protocol.sink import CommitRequest, Predecessor, Sink, predecessor_missing
from twophase.redaction import shown
from twophase.state.checkpoint import CompletedCheckpoint

Explain = Callable[[CompletedCheckpoint, Sink, str, TargetChangedError], TargetChangedError]

Check = Callable[[Sink], None]


class CommitLoop:
    """Commits decided checkpoints.

    Args:
        sinks: all sinks of the job, by name; they commit in this order.
        observers: receive every commit of a piece and every retry.
        clock: for the back-off.
        stopping: when set, an unfinished commit is left to the next recovery.
        backoff_s: the first wait; it doubles up to `backoff_max_s`.
        backoff_max_s: the longest wait.
        explain: adds what the log knows to the error of a sink whose target has changed.
    """

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        observers: Observers,
        clock: Clock,
        stopping: threading.Event,
        backoff_s: float,
        backoff_max_s: float,
        explain: Explain | None = None,
    ) -> None:
        self._sinks = sinks
        self._observers = observers
        self._clock = clock
        self._stopping = stopping
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._explain = explain

    def commit(self, checkpoint: CompletedCheckpoint, check: Check | None = None) -> bool:
        """Commit every piece, sink by sink in the order of the job.

        Args:
            checkpoint: a decided one.
            check: validates a sink that reports a piece as already committed,
                before that is trusted.

        Returns:
            True once all pieces are proven committed; False if the job stops before that.

        Raises:
            LostCommittableError: a piece is proven absent.
            StopJobError: a sink stops the job, or a sink of the checkpoint is not part of the job.
        """
        self._check_sinks(checkpoint)
        # In the order of the job: the checkpoint has the order in which the sinks
        # happened to acknowledge.
        left = {
            sink: list(pieces)
            for sink in self._sinks
            if (pieces := checkpoint.committables.get(sink))
        }
        retries, delay_s, began_s = 0, self._backoff_s, self._clock.monotonic_s()
        while True:
            reasons: dict[str, str] = {}
            stops: list[StopJobError] = []
            for sink in list(left):
                try:
                    left[sink], reasons[sink], lost = self._commit_sink(
                        checkpoint, sink, left[sink], retries, check
                    )
                except StopJobError as error:
                    stops.append(error)
                else:
                    stops += [self._lost(checkpoint, lost)] if lost else []
            if stops:
                raise stops[0]
            left = {sink: pieces for sink, pieces in left.items() if pieces}
            if not left:
                return True
            retries += 1
            for sink in left:
                self._observers(
                    CommitRetried(
                        job=checkpoint.job,
                        checkpoint=checkpoint.checkpoint,
                        sink=sink,
                        reason=reasons[sink],
                        retries=retries,
                        waiting_s=self._clock.monotonic_s() - began_s,
                        next_in_s=delay_s,
                    )
                )
            if self._clock.wait(self._stopping, delay_s):
                return False
            delay_s = min(delay_s * 2, self._backoff_max_s)

    def lost(self, checkpoint: CompletedCheckpoint, sink: str) -> Sequence[tuple[Committable, str]]:
        """Try once to commit the pieces of one sink; return those that it proves lost, each
        with the evidence.

        Raises:
            TargetUnreachableError: the sink could not tell for all of them.
            StopJobError: nothing may be committed to the sink.
        """
        pieces = list(checkpoint.committables.get(sink, ()))
        left, reason, lost = (
            self._commit_sink(checkpoint, sink, pieces, 0) if pieces else ([], "", [])
        )
        if left:
            raise TargetUnreachableError(
                f"Job {checkpoint.job!r}: sink {sink!r} cannot tell yet which pieces of checkpoint "
                f"{checkpoint.checkpoint} are lost: {reason}. Nothing was given up.",
                remedy="bring the target back, then run the command again.",
            )
        return [(piece, why.evidence) for piece, why in lost]

    def _check_sinks(self, checkpoint: CompletedCheckpoint) -> None:
        """A sink with pending pieces may not leave the job (hazard H52)."""
        missing = [
            name
            for name, pieces in checkpoint.committables.items()
            if pieces and name not in self._sinks
        ]
        if missing:
            raise StopJobError(
                f"Job {checkpoint.job!r}: checkpoint {checkpoint.checkpoint} is decided and "
                f"has pieces to commit in {', '.join(missing)}, which the job no longer has. No "
                "data is lost: they stay pre-committed.",
                remedy="put the sink back under its old name until the checkpoint is committed.",
            )

    def _commit_sink(
        self,
        checkpoint: CompletedCheckpoint,
        name: str,
        pieces: list[Committable],
        retries: int,
        check: Check | None = None,
    ) -> tuple[list[Committable], str, list[tuple[Committable, Lost]]]:
        """Try the pieces of one sink; return what is left, why, and what is lost."""
        try:
            before = checkpoint.predecessor(name)
            requests = [CommitRequest(piece, retries, before) for piece in pieces]
            _check_others(checkpoint, name, self._sinks[name], requests)
            outcomes = self._sinks[name].commit(requests)
            if check is not None and any(
                isinstance(outcome, AlreadyCommitted) for outcome in outcomes
            ):
                check(self._sinks[name])
        except TargetChangedError as error:
            raise (
                self._explain(checkpoint, self._sinks[name], name, error)
                if self._explain
                else error
            ) from error
        except StopJobError:
            raise
        except (ConfigError, PreflightError) as error:
            raise StopJobError(
                f"Job {checkpoint.job!r}: checkpoint {checkpoint.checkpoint} is decided, and sink "
                f"{name!r} cannot commit its pieces, now or later: {error.what} No data is lost: "
                "they stay pre-committed.",
                remedy=error.remedy
                or "restore the target to its previous state, then start the job again.",
            ) from error
        except Exception as error:  # noqa: BLE001
            # decided stays decided: after any other error the sink is retried
            text = str(error) if isinstance(error, TwoPhaseError) else shown(str(error))
            return pieces, f"{type(error).__name__}: {text}", []
        if len(outcomes) != len(pieces):
            return (
                pieces,
                f"the sink answered {len(outcomes)} outcomes to {len(pieces)} requests",
                [],
            )
        again: list[Committable] = []
        reasons: list[str] = []
        lost: list[tuple[Committable, Lost]] = []
        for piece, outcome in zip(pieces, outcomes, strict=True):
            match outcome:
                case Committed():
                    self._note(checkpoint, piece, proof="")
                case AlreadyCommitted(proof):
                    self._note(checkpoint, piece, proof)
                case RetryLater(reason):
                    again.append(piece)
                    reasons.append(reason)
                case Lost():
                    lost.append((piece, outcome))
                case other:
                    assert_never(other)
        return again, reasons[0] if reasons else "", lost

    def _note(self, checkpoint: CompletedCheckpoint, piece: Committable, proof: str) -> None:
        name = f"{piece.transaction}/{piece.subtask}"
        self._observers(
            PieceCommitted(
                checkpoint.job, checkpoint.checkpoint, piece.transaction.sink, name, proof
            )
        )

    @staticmethod
    def _lost(
        checkpoint: CompletedCheckpoint, lost: list[tuple[Committable, Lost]]
    ) -> LostCommittableError:
        pieces = "; ".join(
            f"{piece.transaction}/{piece.subtask} ({piece.rows} rows): {why.evidence}"
            for piece, why in lost
        )
        rows = sum(piece.rows for piece, _ in lost)
        return LostCommittableError(
            f"Job {checkpoint.job!r}: checkpoint {checkpoint.checkpoint} is decided, but "
            f"{len(lost)} of its pieces are neither prepared nor committed: {pieces}. {rows} rows "
            "are lost until they are written again.",
            remedy="find out who removed them (an XA ROLLBACK by hand, a failover, deleted files), "
            "and restore the target if it can be. If they are gone for good: twophase repair "
            "rewrite reads their records again, if Kafka still has them and the plan keeps no "
            "state; otherwise let the job go on without them: "
            f"twophase repair accept-loss JOB.yaml --checkpoint {checkpoint.checkpoint} --sink "
            f"{lost[0][0].transaction.sink}",
        )


def _check_others(
    checkpoint: CompletedCheckpoint, name: str, sink: Sink, requests: Sequence[CommitRequest]
) -> None:
    """Check the other predecessors, if an adoption has left several for a sink: committing this
    checkpoint hides them.

    A request names only one. Until a lineage's first commit in this sink it has them all, so
    this check runs once.

    Raises:
        TargetChangedError: the target lacks one of them.
    """
    others = checkpoint.predecessors_in(name)[1:]
    if not others:
        return
    history = sink.history()
    if history.committed.get(checkpoint.lineage, -1) >= checkpoint.checkpoint:
        return  # what is proven needs no predecessor any more
    for proof in others:
        if not knows(history, proof):
            before = Predecessor(proof.lineage, proof.checkpoint)
            raise predecessor_missing(replace(requests[0], predecessor=before), sink.target())
