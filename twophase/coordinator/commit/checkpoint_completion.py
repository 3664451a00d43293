"""Steps 6 to 9 of a checkpoint: what follows its decision.

6. commit     repeated until every sink has proven it, then COMMITTED(n)
7. sweep      superseded task attempts are aborted
8. subsume    older checkpoints are deleted, proofs in the sinks folded
9. notify     listeners are notified, last: one that always fails must not let anything
              grow (hazard H68)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from twophase.contract.committable import Committable
from twophase.contract.listener import CheckpointListener
from twophase.contract.sink import OpenSink
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.commit.orphans import Orphans, PieceKey, key_of, pieces_of
from twophase.coordinator.commit.proofs import Proofs
from twophase.errors import CheckpointMissingError
from twophase.events import CheckpointCommitted, CheckpointSubsumed, Observers, calling_back
from twophase.ids import Attempt
from twophase.internals.clock import Stopwatch
from twophase.internals.failpoints import failpoint
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.journal.entries import CommittedRecord, Decision, Lineage
from twophase.state.journal.log import JobLog
from twophase.state.journal.stats import CheckpointStats

_log = logging.getLogger("twophase")

SUBSUME_SINKS_EVERY = 16
"""Checkpoints from one subsumption in the sinks to the next."""


class Listeners:
    """The listeners of a job, notified of one thing at a time.

    Args:
        job: the job's name.
        listeners: in the order in which they are notified.
    """

    def __init__(self, job: str, listeners: Sequence[CheckpointListener]) -> None:
        self._job = job
        self._listeners = listeners
        self._lock = threading.RLock()

    @contextmanager
    def called(self) -> Iterator[None]:
        """Notify them in the block, or snapshot their state: one thread at a time."""
        with self._lock, calling_back(self._job):
            yield

    def complete(self, checkpoint: int) -> None:
        """The checkpoint is decided and committed."""
        self._notify("notify_checkpoint_complete", checkpoint)

    def aborted(self, checkpoint: int) -> None:
        """An attempt at the checkpoint was declined. What a listener raises is logged: the job
        fails with what the attempt was declined for.
        """
        with self.called():
            for notify in self._methods("notify_checkpoint_aborted"):
                try:
                    notify(checkpoint)
                except Exception:  # noqa: BLE001 it is foreign code
                    _log.exception("job %s: a listener failed on an abort", self._job)

    def subsumed(self, checkpoint: int) -> None:
        """The checkpoint is not kept any more."""
        self._notify("notify_checkpoint_subsumed", checkpoint)

    def _notify(self, method: str, checkpoint: int) -> None:
        """Call a method of each listener that has it."""
        with self.called():
            for notify in self._methods(method):
                notify(checkpoint)

    def _methods(self, name: str) -> list[Callable[[int], None]]:
        found = (getattr(listener, name, None) for listener in self._listeners)
        return [method for method in found if method is not None]


class CheckpointCompleter:
    """Completes decided checkpoints, oldest first. For one thread at a time.

    Args:
        job: the job's name.
        sinks: by name.
        commit_loop: of these sinks.
        log: the job's log.
        store: the job's checkpoints.
        proofs: the proofs that the log expects in the targets.
        listeners: notified of completed and subsumed checkpoints.
        observers: receive every event.
    """

    def __init__(
        self,
        job: str,
        sinks: Mapping[str, OpenSink],
        commit_loop: CommitLoop,
        log: JobLog,
        store: CompletedCheckpointStore,
        proofs: Proofs,
        listeners: Listeners,
        observers: Observers,
    ) -> None:
        self._job = job
        self._sinks = sinks
        self._commit_loop = commit_loop
        self._log = log
        self._store = store
        self._proofs = proofs
        self._listeners = listeners
        self._observers = observers

    def commit(self, completed: CompletedCheckpoint, stopwatch: Stopwatch) -> bool:
        """Step 6, for a checkpoint that this driver has decided.

        Returns:
            Whether every sink has proven it committed; False if the job is stopping before that.

        Raises:
            LostCommittableError: a piece is proven absent.
            FencedError: a sink reports its pieces as committed, or lost, and a newer driver
                has raised its fence.
            StopJobError: the job must not go on.
        """
        failpoint("C11")
        with stopwatch.elsewhere():
            return self._commit_loop.commit(completed, own=True)

    def complete(
        self, completed: CompletedCheckpoint, stopwatch: Stopwatch, stats: CheckpointStats
    ) -> None:
        """Record that the checkpoint is committed, then steps 7 to 9.

        Raises:
            FencedError: a newer driver has taken the job over.
            StopJobError: the job must not go on.
        """
        self._log.append(CommittedRecord(completed.lineage, completed.checkpoint, stats))
        try:
            self._follow_up(completed, stopwatch)
        except Exception:  # it is committed all the same, and nobody tells it later
            self._report(completed, stopwatch, stats)
            raise
        self._report(completed, stopwatch, stats)

    def _follow_up(self, completed: CompletedCheckpoint, stopwatch: Stopwatch) -> None:
        """Steps 7 to 9."""
        with stopwatch.elsewhere():
            # before the bodies go, which tell pieces of a restored target from superseded ones
            self.abort_superseded_attempts(completed.attempt)
        gone = self._store.subsume()
        with stopwatch.elsewhere():
            self._subsume_sinks(completed.lineage, completed.checkpoint)
            self._notify(completed.checkpoint, gone)
        failpoint("C16")

    def _report(
        self, completed: CompletedCheckpoint, stopwatch: Stopwatch, stats: CheckpointStats
    ) -> None:
        self._observers(
            CheckpointCommitted(
                completed.job,
                completed.checkpoint,
                completed.rows,
                tuple(line or "" for line in completed.offsets.end),
                stopwatch.total_s,
                stopwatch.protocol_s,
                completed.rows_by_sink,
                stats.pre_commit_ms / 1000,
                stats.decide_ms / 1000,
                stats.commit_ms / 1000,
                stats.size_bytes,
                tuple(one.reason for one in stats.declined),
            )
        )

    def commit_decided(
        self, decision: Decision, *, own: bool = False, loop: CommitLoop | None = None
    ) -> bool:
        """Commit a decided checkpoint of any driver; sinks answer from proof what is committed.

        Args:
            decision: on it.
            own: as for `CommitLoop.commit`.
            loop: that of a restore, if one is about to begin.

        Returns:
            Whether it is committed; False if the job is stopping before that.

        Raises:
            FencedError: as for `commit`.
        """
        done = (loop or self._commit_loop).commit(self._store.read(decision), own=own)
        if done and not decision.committed:
            self._log.append(CommittedRecord(decision.lineage, decision.checkpoint))
        return done

    def pieces_to_commit(self) -> frozenset[PieceKey]:
        """The pieces that no scan for orphans may touch (I2)."""
        history = self._log.history
        ahead = (key_of(piece) for one in history.ahead for piece in one.pieces)
        return pieces_of(map(self._store.read, history.uncommitted())).union(ahead)

    def abort_superseded_attempts(self, attempt: Attempt) -> None:
        """Abort pre-committed task attempts that another attempt of their task superseded.

        Args:
            attempt: the newest attempt; superseded task attempts up to it are aborted.

        Raises:
            TargetChangedError: the target of a sink with such pieces lacks a committed checkpoint,
                which they may be of.
        """
        below, kept = Attempt(attempt.generation, attempt.counter + 1), self.pieces_to_commit()
        for name, sink in self._sinks.items():
            may_abort = partial(self._superseded, name, sink)
            Orphans(self._job, name, sink, self._observers, may_abort).abort(below, kept)

    def _superseded(
        self, name: str, sink: OpenSink, found: Sequence[Committable]
    ) -> Sequence[Committable]:
        """Return which pieces in doubt of a sink are of superseded attempts.

        No body is left to tell that they are not of an older checkpoint, in a target that was
        restored from a backup. The sink's newest committed checkpoint tells: each commit requires
        the proof of its predecessor, so a target that has its proof lacks nothing before it. The
        target is asked after the pieces were found.
        """
        if left := self.commit_restored(found):
            self._proofs.check(name, sink)
        return left

    def commit_restored(self, found: Sequence[Committable]) -> Sequence[Committable]:
        """Commit the pieces of committed checkpoints that a restored target prepared again (I2).

        Args:
            found: what is in doubt in one sink.

        Returns:
            The pieces that are in no committed decision whose body is kept: they may be aborted.

        Raises:
            TargetChangedError: the target lacks more than that.
        """
        # Not by attempt: after a rewrite pieces of a checkpoint have several.
        checkpoints = {(piece.transaction.lineage, piece.transaction.checkpoint) for piece in found}
        for decision in self._log.history.decisions:
            if not decision.committed or (decision.lineage, decision.checkpoint) not in checkpoints:
                continue
            try:
                mine = pieces_of([self._store.read(decision)])
            except CheckpointMissingError:  # subsumed
                continue
            if any(key_of(piece) in mine for piece in found):
                self.commit_decided(decision)
                found = [piece for piece in found if key_of(piece) not in mine]
        return found

    def catch_up(self, newest: Decision | None) -> None:
        """Fold the proofs that a dead driver did not get to fold; all decisions are committed.

        Args:
            newest: of the current lineage, what was committed already when recovery began;
                None before the first.
        """
        current = self._log.history.lineage
        mine = [
            one.checkpoint
            for one in self._log.history.decisions
            if current and one.lineage == current.id
        ]
        if current and mine:
            ancestors = [*current.ancestors.items()]
            # A checkpoint behind the first was completed once all ancestors were folded. The parent
            # again: in a target that was restored from a backup, its proofs are back.
            self._subsume_in_sinks(ancestors[-1:] if self._has_completed(current) else ancestors)
            for checkpoint in mine:
                if not newest or checkpoint >= newest.checkpoint:
                    self._subsume_if_due(current.id, checkpoint)

    def _has_completed(self, lineage: Lineage) -> bool:
        """Return whether a checkpoint behind the lineage's first was taken through to its end."""
        return any(
            one.lineage == lineage.id and one.checkpoint > lineage.first_checkpoint
            for one in self._log.history.stats
        )

    def _subsume_sinks(self, lineage: str, checkpoint: int) -> None:
        """Let the sinks fold their proofs if that is due: the ancestors' first.

        No lineage has a mark alone while an ancestor still has more: `LineageOrder` tells by that
        which is the older one. Its first checkpoint sees to that, and `catch_up` after a driver
        that died there.
        """
        [current] = [known for known in self._log.history.lineages if known.id == lineage]
        if checkpoint == current.first_checkpoint:
            self._subsume_in_sinks(current.ancestors.items())
        self._subsume_if_due(lineage, checkpoint)

    def _subsume_if_due(self, lineage: str, checkpoint: int) -> None:
        """Only the number tells when: a process may live for one checkpoint only. All checkpoints
        before it are committed too.
        """
        if (checkpoint + 1) % SUBSUME_SINKS_EVERY == 0:
            self._subsume_in_sinks([(lineage, checkpoint)])

    def _subsume_in_sinks(self, last: Iterable[tuple[str, int]]) -> None:
        for lineage, checkpoint in last:
            for sink in self._sinks.values():
                sink.subsume(lineage, checkpoint)

    def _notify(self, checkpoint: int, gone: Sequence[Decision]) -> None:
        for decision in gone:
            self._observers(CheckpointSubsumed(self._job, decision.checkpoint))
        self._listeners.complete(checkpoint)
        for decision in gone:
            self._listeners.subsumed(decision.checkpoint)
