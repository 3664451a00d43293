"""Phase 2: commits a decided checkpoint in every sink, until each piece is proven committed.

A decided checkpoint is never aborted (I2). A sink that cannot commit blocks the job: the others
commit, this one is retried with back-off, and every retry is an event (hazards H15, H37). Even when
a sink's error stops the job, the other sinks commit first.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, OpenSink, Predecessor, predecessor_missing
from twophase.coordinator.commit.proofs import RefusedCommit, knows, moved
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
from twophase.internals.clock import Clock
from twophase.internals.redaction import shown
from twophase.options.job_options import SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint

Explain = Callable[[RefusedCommit], TargetChangedError]

Check = Callable[[CompletedCheckpoint, OpenSink], None]


@dataclass(frozen=True)
class _Try:
    """What became of the pieces of a sink in one try.

    Attributes:
        left: the pieces that are not committed yet.
        reason: why.
        lost: the pieces proven lost.
        committed: the others, each with its proof, which is empty if this try has committed it.
    """

    left: Sequence[Committable] = ()
    reason: str = ""
    lost: Sequence[tuple[Committable, Lost]] = ()
    committed: Sequence[tuple[Committable, str]] = ()


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
        check: validates a sink that calls a piece lost, or one that this driver has decided already
            committed, before it is trusted.
    """

    def __init__(
        self,
        sinks: Mapping[str, OpenSink],
        observers: Observers,
        clock: Clock,
        stopping: threading.Event,
        backoff_s: float,
        backoff_max_s: float,
        explain: Explain | None = None,
        check: Check | None = None,
    ) -> None:
        self._sinks = sinks
        self._observers = observers
        self._clock = clock
        self._stopping = stopping
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self._explain = explain
        self._check = check
        self._restored_from = ""
        self._sink_ahead = SinkAhead.REFUSE
        self._adopts = False
        self._retried: list[CompletedCheckpoint] = []

    @property
    def is_retrying(self) -> bool:
        """True while a sink has not committed a checkpoint at the first try."""
        return bool(self._retried)

    def over(
        self,
        sinks: Mapping[str, OpenSink],
        restored_from: str,
        sink_ahead: SinkAhead,
        *,
        adopts: bool = True,
    ) -> CommitLoop:
        """Return a loop like this one, over the sinks of what is restored.

        Args:
            sinks: in the order of the job.
            restored_from: what was given as `restore.path`.
            sink_ahead: the policy that was given with it.
            adopts: whether it commits what is restored, and not what the job's own log has decided.
        """
        other = copy(self)
        other._sinks, other._restored_from, other._sink_ahead = sinks, restored_from, sink_ahead
        other._adopts = adopts
        if sink_ahead is SinkAhead.FORK:
            other._explain = partial(_target_of_original, restored_from)
            other._check = None  # the fences there are of the first job's drivers
        elif self._explain is not None:
            other._explain = partial(_target_that_begins, self._explain)
        return other

    def commit(self, checkpoint: CompletedCheckpoint, *, own: bool = False) -> bool:
        """Commit every piece, sink by sink in the order of the job.

        Args:
            checkpoint: a decided one.
            own: whether this driver has decided it, and not an older one, which may have committed
                pieces before another driver raised its fence.

        Returns:
            True once all pieces are proven committed; False if the job stops before that.

        Raises:
            LostCommittableError: a piece is proven absent.
            StopJobError: a sink stops the job, or a sink of the checkpoint is not part of the job.
        """
        left, reported = self._pieces(checkpoint), set[str]()
        retries, delay_s, began_s = 0, self._backoff_s, self._clock.monotonic_s()
        try:
            while True:
                left, reasons = self._try_sinks(checkpoint, left, retries, reported, own=own)
                if not left:
                    return True
                if not retries:
                    self._retried.append(checkpoint)
                retries += 1
                for sink, reason in reasons.items():
                    waiting_s = self._clock.monotonic_s() - began_s
                    where = (checkpoint.job, checkpoint.checkpoint, sink)
                    self._observers(CommitRetried(*where, reason, retries, waiting_s, delay_s))
                if self._clock.wait(self._stopping, delay_s):
                    return False
                delay_s = min(delay_s * 2, self._backoff_max_s)
        finally:
            if retries:
                self._retried.remove(checkpoint)

    def try_once(self, checkpoint: CompletedCheckpoint) -> bool:
        """Try every piece of a checkpoint of this driver once; see `commit`.

        Returns:
            Whether all of them are proven committed.
        """
        left, reasons = self._try_sinks(checkpoint, self._pieces(checkpoint), 0, set(), own=True)
        for sink, reason in reasons.items():
            where = (checkpoint.job, checkpoint.checkpoint, sink)
            self._observers(CommitRetried(*where, reason, 1, 0.0, 0.0))
        return not left

    def _pieces(self, checkpoint: CompletedCheckpoint) -> dict[str, Sequence[Committable]]:
        """Return the pieces to commit, in the order of the job: the checkpoint has that of the
        acknowledgements.
        """
        self._check_sinks(checkpoint)
        pieces = checkpoint.committables
        return {sink: pieces[sink] for sink in self._sinks if pieces.get(sink)}

    def _try_sinks(
        self,
        checkpoint: CompletedCheckpoint,
        pieces: Mapping[str, Sequence[Committable]],
        retries: int,
        reported: set[str],
        *,
        own: bool,
    ) -> tuple[dict[str, Sequence[Committable]], dict[str, str]]:
        """Try each sink once; return the pieces of those that have some left, and why.

        All pieces of such a sink are tried again: its target may have been restored from a backup
        meanwhile, and one piece that is there proves the checkpoint to all that come later. An
        error that stops the job is raised when all sinks have been tried.
        """
        tries: dict[str, _Try] = {}
        stops: list[StopJobError] = []
        for sink, mine in pieces.items():
            try:
                tries[sink] = done = self._commit_sink(checkpoint, sink, mine, retries, own=own)
            except StopJobError as error:
                stops.append(error)
            else:
                self._report(checkpoint, done, reported)
                stops += [self._lost(checkpoint, done.lost)] if done.lost else []
        if stops:
            raise stops[0]
        left = {sink: pieces[sink] for sink, done in tries.items() if done.left}
        return left, {sink: tries[sink].reason for sink in left}

    def lost(self, checkpoint: CompletedCheckpoint, sink: str) -> Sequence[tuple[Committable, str]]:
        """Try once to commit the pieces of one sink; return those proven lost, with the evidence.

        Raises:
            TargetUnreachableError: the sink could not tell for all of them.
            StopJobError: nothing may be committed to the sink.
        """
        pieces = checkpoint.committables.get(sink, ())
        done = self._commit_sink(checkpoint, sink, pieces, 0) if pieces else _Try()
        self._report(checkpoint, done, set())
        if done.left:
            raise TargetUnreachableError(
                f"Job {checkpoint.job!r}: sink {sink!r} cannot tell yet which pieces of checkpoint "
                f"{checkpoint.checkpoint} are lost: {done.reason}. Nothing was given up.",
                remedy="bring the target back, then run the command again.",
            )
        return [(piece, why.evidence) for piece, why in done.lost]

    def _check_sinks(self, checkpoint: CompletedCheckpoint) -> None:
        """A sink with pending pieces may not leave the job (hazard H52)."""
        with_pieces = [name for name, pieces in checkpoint.committables.items() if pieces]
        missing = [name for name in with_pieces if name not in self._sinks]
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
        pieces: Sequence[Committable],
        retries: int,
        *,
        own: bool = False,
    ) -> _Try:
        """Try the pieces of one sink once."""
        sink, before, check = self._sinks[name], checkpoint.predecessor(name), self._check
        distrusted = AlreadyCommitted | Lost if own else Lost
        requests = [CommitRequest(piece, retries, before) for piece in pieces]
        try:
            _check_others(checkpoint, name, sink, requests)
            outcomes = self._ask(sink, requests)
            if check is not None and any(isinstance(one, distrusted) for one in outcomes):
                check(checkpoint, sink)
        except TargetChangedError as error:
            explain = self._explain
            if explain is None:
                raise
            accept = self._accepting(checkpoint, name)
            raise explain(RefusedCommit(checkpoint, sink, name, error, accept)) from error
        except StopJobError:
            raise
        except (ConfigError, PreflightError) as error:
            raise _cannot_commit(checkpoint, name, error) from error
        except Exception as error:  # noqa: BLE001 decided stays decided: the sink is retried
            text = str(error) if isinstance(error, TwoPhaseError) else shown(str(error))
            return _Try(pieces, f"{type(error).__name__}: {text}")
        if len(outcomes) != len(pieces):
            answer = f"{len(outcomes)} outcomes to {len(pieces)} requests"
            return _Try(pieces, f"the sink answered {answer}")
        return _tried(pieces, outcomes)

    def _ask(self, sink: OpenSink, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Ask a sink to commit pieces.

        What is restored may be older than a loss that was accepted in the folder that it was made
        of: if the target lacks the proof of a predecessor and has a later one of that lineage, the
        job has gone on without it.
        """
        try:
            return sink.commit(requests)
        except TargetChangedError:
            before = requests[0].predecessor
            if not self._adopts or before is None or not knows(sink.history(), before):
                raise
            return sink.commit([replace(request, predecessor=None) for request in requests])

    def _report(self, checkpoint: CompletedCheckpoint, done: _Try, reported: set[str]) -> None:
        """Report the pieces that are committed, each once."""
        for piece, proof in done.committed:
            name = f"{piece.transaction}/{piece.subtask}"
            if name in reported:
                continue
            reported.add(name)
            self._observers(
                PieceCommitted(
                    checkpoint.job, checkpoint.checkpoint, piece.transaction.sink, name, proof
                )
            )

    def _lost(
        self, checkpoint: CompletedCheckpoint, lost: Sequence[tuple[Committable, Lost]]
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
            "and restore the target if it can be. If they are gone for good: "
            + self._ways_on(checkpoint, lost[0][0].transaction.sink),
        )

    def _ways_on(self, checkpoint: CompletedCheckpoint, sink: str) -> str:
        """Say how lost rows are written again, if they can be, and how to go on without them."""
        accept = self._accepting(checkpoint, sink)
        if not self._adopts:
            return (
                "twophase repair rewrite reads their records again, if their source still has "
                "them and the plan keeps no state; otherwise let the job go on without them: "
                f"{accept}"
            )
        if self._sink_ahead is not SinkAhead.FORK:
            return accept
        return (
            f"if the folder of job {checkpoint.job!r} is still there, the error of this command "
            f"says how they are written again: {_finish(self._restored_from, checkpoint)}; "
            f"otherwise let this job begin without them: {accept}"
        )

    def _accepting(self, checkpoint: CompletedCheckpoint, sink: str) -> str:
        """Return the command that accepts the loss of a checkpoint in a sink."""
        path, policy = self._restored_from, self._sink_ahead
        accept = (
            f"twophase repair accept-loss JOB.yaml --checkpoint {checkpoint.checkpoint} "
            f"--sink {sink}"
        )
        if path:
            accept += f" --restore {shlex.quote(path)}"
        if policy is not SinkAhead.REFUSE:
            accept += f" --sink-ahead {policy.value}"
        return accept


def _finish(path: str, checkpoint: CompletedCheckpoint) -> str:
    return f"twophase savepoint finish {checkpoint.job}.yaml {shlex.quote(path)}"


def _tried(pieces: Sequence[Committable], outcomes: Sequence[CommitOutcome]) -> _Try:
    left: list[Committable] = []
    reasons: list[str] = []
    lost: list[tuple[Committable, Lost]] = []
    committed: list[tuple[Committable, str]] = []
    for piece, outcome in zip(pieces, outcomes, strict=True):
        match outcome:
            case Committed():
                committed.append((piece, ""))
            case AlreadyCommitted(proof):
                committed.append((piece, proof))
            case RetryLater(reason):
                left.append(piece)
                reasons.append(reason)
            case Lost():
                lost.append((piece, outcome))
            case other:
                assert_never(other)
    return _Try(left, reasons[0] if reasons else "", lost, committed)


def _target_that_begins(explain: Explain, refused: RefusedCommit) -> TargetChangedError:
    """Return the error of a restore: a sink may begin in another target, which lacks all before."""
    return moved(refused) if refused.is_elsewhere else explain(refused)


def _target_of_original(path: str, refused: RefusedCommit) -> TargetChangedError:
    """Return the error of a fork: what the target lacks is in the log of the first job."""
    checkpoint = refused.checkpoint
    return TargetChangedError(
        refused.error.what,
        remedy="restore the target to its previous state; or commit it with the job file of "
        f"{checkpoint.job!r}, whose error says what is missing, and how to go on without it: "
        f"{_finish(path, checkpoint)}",
    )


def _cannot_commit(
    checkpoint: CompletedCheckpoint, sink: str, error: ConfigError | PreflightError
) -> StopJobError:
    return StopJobError(
        f"Job {checkpoint.job!r}: checkpoint {checkpoint.checkpoint} is decided, and sink "
        f"{sink!r} cannot commit its pieces, now or later: {error.what} No data is lost: "
        "they stay pre-committed.",
        remedy=error.remedy
        or "restore the target to its previous state, then start the job again.",
    )


def _check_others(
    checkpoint: CompletedCheckpoint, name: str, sink: OpenSink, requests: Sequence[CommitRequest]
) -> None:
    """Check the other predecessors, if an adoption has left several for a sink.

    Committing this checkpoint hides them. A request names only one. Until a lineage's first commit
    in this sink it has them all, so this check runs once.

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
