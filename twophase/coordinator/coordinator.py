"""The checkpoint coordinator: trigger, acknowledge, decide, commit, subsume, notify.

    1. trigger        `checkpoint`: a pending checkpoint with frozen offsets under a new attempt
    2. pre-commit     the caller's function lets every sink write, and acknowledges for each
    3. decide         `_decide`: the body, then the record DECIDED(n) in the log. This is the decision
    4. to 6.          commit, subsume, notify: `coordinator.completion`

A failure before step 3 declines the attempt: its pieces are aborted, its attempt is closed in every sink, and it is
retried whole while `checkpoint.tolerable_failures` allows. A failure after step 3 aborts nothing.

With `checkpoint.max_concurrent` above 1 a thread takes steps 4 to 6 while the next checkpoints take 1 to 3
(`coordinator.commit_queue`). An attempt is only closed when nothing is left to commit: its fence would wait for what is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twophase.config import JobOptions
from twophase.coordinator.clock import Clock
from twophase.coordinator.commit_loop import CommitLoop
from twophase.coordinator.commit_queue import CommitQueue, Spawn, plain_thread
from twophase.coordinator.completion import CheckpointCompleter, Listeners
from twophase.coordinator.failure_reason import CheckpointFailureReason
from twophase.coordinator.fan_out import FanOut, sequentially
from twophase.coordinator.orphans import Orphans
from twophase.coordinator.pending import PendingCheckpoint
from twophase.coordinator.proofs import Proofs, check_targets, has_moved
from twophase.coordinator.recovery import (
    Restore,
    check_histories,
    check_restore,
    close_all,
    commit_decided,
    piece_names,
    take_over,
)
from twophase.coordinator.state_machine import Signal
from twophase.coordinator.stopwatch import Stopwatch
from twophase.errors import (
    CheckpointExpiredError,
    CheckpointMissingError,
    DeclinedError,
    FencedError,
    InDoubtError,
    LostCommittableError,
    OffsetMismatchError,
    StopJobError,
)
from twophase.events import (
    CheckpointDecided,
    CheckpointDeclined,
    CheckpointReplayed,
    CheckpointTriggered,
    Observers,
    RecoveryFinished,
    RecoveryStarted,
)
from twophase.failpoints import failpoint
from twophase.ids import Attempt
from twophase.protocol.committable import Committable
from twophase.protocol.listener import CheckpointListener
from twophase.protocol.sink import Sink, SinkHistory
from twophase.redaction import shown
from twophase.state.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.log import JobLog
from twophase.state.records import Decision, History, Lineage, LineageRecord
from twophase.state.storage import AlreadyExistsError, Storage, UnclearOutcomeError
from twophase.state.store import CompletedCheckpointStore


@dataclass(frozen=True)
class Replay:
    """Spark runs a micro-batch again whose checkpoint is decided: no sink writes."""

    decision: Decision


@dataclass(frozen=True)
class Write:
    """The micro-batch is new."""


class CheckpointCoordinator:
    """Coordinates the checkpoints of one job, as one driver. Not for several threads, apart from `stop`.

    Args:
        job: the job's name.
        storage: the job's folder.
        sinks: by name, in the order of the user; opened.
        options: the job's options.
        observers: hear of everything.
        clock: the time.
        snapshot: returns the operator states for a checkpoint; an exception declines the attempt.
        listeners: hear of completed, aborted and subsumed checkpoints.
        spawn: makes the thread that commits behind the next batch.
        fan_out: asks several sinks for the same thing, in recovery and after a declined attempt.
        on_failure: called by that thread when a decided checkpoint cannot be committed and the job must end.
    """

    def __init__(
        self,
        job: str,
        storage: Storage,
        sinks: Mapping[str, Sink],
        options: JobOptions,
        *,
        observers: Observers,
        clock: Clock,
        snapshot: Callable[[int, FrozenOffsets], Mapping[str, Any]],
        listeners: Sequence[CheckpointListener] = (),
        spawn: Spawn = plain_thread,
        fan_out: FanOut = sequentially,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.job = job
        self.log = JobLog(storage, job)
        self.store = CompletedCheckpointStore(storage, self.log, options.num_retained)
        self.stopping = threading.Event()
        self._sinks = sinks
        self._options = options
        self._observers = observers
        self._clock = clock
        self._snapshot = snapshot
        self._fan_out = fan_out
        self._listeners = Listeners(listeners)
        self._generation = 0
        self._counter = 0
        self._last_commit_s = float("-inf")
        self._recommitted: tuple[str, int] | None = None
        self._proofs = Proofs(job, self.log, self.store)
        self._commit_loop = CommitLoop(
            sinks,
            observers,
            clock,
            self.stopping,
            options.commit_backoff_s,
            options.commit_backoff_max_s,
            self._proofs.explain,
        )
        self._completer = CheckpointCompleter(
            job, sinks, self._commit_loop, self.log, self.store, self._listeners, observers
        )
        self._behind = CommitQueue(spawn, on_failure)

    @property
    def lineage(self) -> Lineage:
        """The current lineage.

        Raises:
            CheckpointMissingError: none has begun.
        """
        if self.log.history.lineage is None:
            raise CheckpointMissingError(f"Job {self.job!r} has no lineage yet.")
        return self.log.history.lineage

    def newest(self) -> Decision | None:
        """The newest decided checkpoint of the current lineage."""
        return self.log.history.newest(self.lineage.id)

    def _newest_committed(self) -> Decision | None:
        """The newest committed checkpoint of the current lineage."""
        history = self.log.history
        return history.newest_committed(history.lineage.id) if history.lineage else None

    @property
    def failure(self) -> BaseException | None:
        """Why a decided checkpoint could not be committed behind the next batch, if so."""
        return self._behind.failure

    def close(self, *, retry: bool = False) -> None:
        """Wait until nothing more is being committed; what is left then is committed by the next recovery.

        Args:
            retry: until everything is committed or the job is stopped; otherwise what is left is tried once.
        """
        if not retry:
            self.stopping.set()
        self._behind.close()

    # -- recovery ------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The generation with which this driver took the job over, also if recovery failed after that; 0 before."""
        return self._generation

    def recover(self, previous_generation: int | None = None, restore: Restore | None = None) -> None:
        """Take the job over and finish what older drivers left. See `coordinator.recovery` for the order.

        Args:
            previous_generation: what this very driver had before a restart; if the log has a newer one, it is fenced.
            restore: whose lineage is about to begin, if any.

        Raises:
            StopJobError: the job must not go on.
        """

        def check(history: History) -> None:
            if previous_generation is not None and history.generation != previous_generation:
                raise FencedError(
                    f"Job {self.job!r}: a driver of generation {history.generation} has taken over from "
                    f"{previous_generation}.",
                    remedy="leave this driver stopped.",
                )
            self._check_sinks(history, remembered, restore)

        began_s = self._clock.monotonic_s()
        remembered = self._remembered()
        self._generation = take_over(self.log, remembered, check)
        self._observers(RecoveryStarted(self.job, self._generation))
        failpoint("C18")
        self.store.subsume()  # whatever this recovery or the drivers before it die of, nothing grows
        self.log.sweep()
        newest = self._newest_committed()
        recommitted = commit_decided(self.log.history, self._recommit)
        for checkpoint in restore.adopting if restore else ():
            recommitted += self._commit_loop.commit(checkpoint)
        if self.stopping.is_set():
            return
        failpoint("C22")
        try:
            aborted = self._close_below(Attempt(self._generation, 0), restore)
            self._ask_again(restore)
        except StopJobError:
            # What could not be aborted may be what another driver has committed: then that is the error. If a sink does not
            # answer, that is: the next start asks, and until then nobody is advised to remove rows that are decided.
            self._ask_again(restore)
            raise
        except Exception:
            self.log.check_fence()  # what a newer driver has moved on looks like loss to the one that it has overtaken
            raise
        self.store.sweep()
        self._completer.catch_up(newest)
        duration_s = self._clock.monotonic_s() - began_s
        self._observers(RecoveryFinished(self.job, self._generation, recommitted, aborted, duration_s))

    def _ask_again(self, restore: Restore | None) -> None:
        """Hold the sinks against the log once more: a driver over another folder can commit until all fences are up.

        Raises:
            FencedError: another driver over this folder has gone on, which the sinks may know of by now.
            StopJobError: the job must not go on.
        """
        remembered, history = self._remembered(), self.log.history
        self.log.check_fence()
        self._check_sinks(history, remembered, restore)

    def _check_sinks(self, history: History, remembered: Mapping[str, SinkHistory], restore: Restore | None) -> None:
        """Hold what the sinks remember against the log, or against what is restored.

        Raises:
            StopJobError: the job must not go on.
        """
        if restore is None:
            check_histories(self.job, history, remembered, piece_names(self._sinks))
        else:
            check_restore(self.job, history, restore.lineage, remembered)
        expected = restore.committed if restore else self._proofs.committed()
        check_targets(self._proofs, expected, self._sinks, remembered, may_move=restore is not None)

    def _remembered(self) -> dict[str, SinkHistory]:
        def remember(sink: Sink, _: Observers) -> SinkHistory:
            return sink.history()

        return self._fan_out({name: partial(remember, sink) for name, sink in self._sinks.items()}, self._observers)

    def _recommit(self, decision: Decision) -> bool:
        """Of recovery: the newest that every sink has just proven need not be asked for again when Spark replays it."""
        done = self._completer.recommit(decision)
        if done:
            self._recommitted = (decision.lineage, decision.checkpoint)
        return done

    def begin_lineage(self, lineage: Lineage) -> None:
        """Begin a new lineage, after `recover`. A sink that has got another target with it begins there without proofs."""
        kept = tuple(proof for proof in lineage.proofs or () if not has_moved(proof, self._sinks.get(proof.sink)))
        self.log.append(LineageRecord(replace(lineage, proofs=kept)))

    # -- a micro-batch -------------------------------------------------------------------------------------------------

    def classify(self, checkpoint: int, offsets: FrozenOffsets) -> Write | Replay:
        """What to do with micro-batch n: write it, or recognise it as decided.

        Raises:
            OffsetMismatchError: Spark's folder and the store do not belong together.
        """
        newest = self.newest()
        if newest is None:
            if checkpoint == self.lineage.first_checkpoint:
                return Write()
            raise self._mismatch(checkpoint, f"the store expects its first checkpoint, {self.lineage.first_checkpoint}")
        if checkpoint == newest.checkpoint:
            if offsets.hash == newest.offsets_hash:
                return Replay(newest)
            raise self._mismatch(checkpoint, "it is decided with other offsets")
        if checkpoint != newest.checkpoint + 1:
            raise self._mismatch(checkpoint, f"the newest decided checkpoint is {newest.checkpoint}")
        if self.store.read(newest).offsets.end != offsets.start:
            raise self._mismatch(checkpoint, f"it does not begin where checkpoint {newest.checkpoint} ended")
        return Write()

    def replay(self, decision: Decision, execute: Callable[[], None] | None) -> None:
        """Handle a decided micro-batch again: commit what is not committed, call no sink to write.

        A committed one is asked for again, unless the recovery of this driver has just committed it.

        Args:
            decision: as `classify` returned it.
            execute: runs the batch without sinks, for plans with state or a watermark (hazard H42).
        """
        self._behind.wait(0)
        if not decision.committed:
            commit_decided(self.log.history, self._completer.recommit)
        elif (decision.lineage, decision.checkpoint) != self._recommitted:
            self._completer.recommit(decision)
        if execute is not None:
            execute()
        self._observers(CheckpointReplayed(self.job, decision.checkpoint, execute is not None))

    def checkpoint(self, number: int, offsets: FrozenOffsets, pre_commit: Callable[[PendingCheckpoint], None]) -> None:
        """Take checkpoint `number`. Returns only once it is decided.

        Args:
            number: n.
            offsets: as `classify` accepted them.
            pre_commit: lets every sink write and acknowledges for each; when it raises, all its tasks have ended.

        Raises:
            DeclinedError: no attempt was decided; nothing of it is visible.
            StopJobError: the job must stop.
        """
        self._make_room(number)
        for failures in range(self._options.tolerable_failures + 1):
            self._pause()
            failpoint("C01")
            pending = self._trigger(number, offsets)
            stopwatch = Stopwatch(self._clock)
            try:
                self._pre_commit(pending, pre_commit, stopwatch)
                completed = self._decide(pending, stopwatch)
            except DeclinedError as error:
                if not self._decline(pending, error, last=failures == self._options.tolerable_failures):
                    raise
                continue
            self._finish(pending, completed, stopwatch)
            return

    def _make_room(self, number: int) -> None:
        """What is decided commits before anything new begins (hazard rule HD4), but for what may be under way."""
        at_most = self._options.max_concurrent - 1
        if at_most:
            self._behind.wait(at_most)
        else:
            commit_decided(self.log.history, self._completer.recommit)
        left = self.log.history.uncommitted()
        if len(left) > at_most:  # only a stop leaves something over
            raise DeclinedError(
                f"Job {self.job!r}: checkpoint {number} was not begun: checkpoint {left[0].checkpoint} is decided but not "
                "committed yet, and the job is stopping."
            )

    def _pause(self) -> None:
        """Keep `checkpoint.min_pause` between a commit and the next trigger."""
        left_s = self._last_commit_s + self._options.min_pause_s - self._clock.monotonic_s()
        if left_s > 0:
            self._clock.wait(self.stopping, left_s)

    def _trigger(self, number: int, offsets: FrozenOffsets) -> PendingCheckpoint:
        """Step 1."""
        self._counter += 1
        attempt = Attempt(self._generation, self._counter)
        self._observers(CheckpointTriggered(self.job, number, attempt))
        return PendingCheckpoint(
            job=self.job,
            lineage=self.lineage.id,
            checkpoint=number,
            attempt=attempt,
            offsets=offsets,
            sinks=tuple(self._sinks),
            trigger_time_ms=self._clock.unix_ms(),
        )

    def _pre_commit(
        self, pending: PendingCheckpoint, pre_commit: Callable[[PendingCheckpoint], None], stopwatch: Stopwatch
    ) -> None:
        """Step 2."""
        pending.operator_states = self._states(pending.checkpoint, pending.offsets)
        failpoint("C02")
        with stopwatch.elsewhere():
            pre_commit(pending)
        failpoint("C06")
        if missing := pending.missing():
            raise DeclinedError(f"Checkpoint {pending.checkpoint} was not acknowledged by {', '.join(missing)}.")

    def _states(self, number: int, offsets: FrozenOffsets) -> Mapping[str, Any]:
        try:
            with self._listeners.lock:
                return self._snapshot(number, offsets)
        except Exception as error:
            raise DeclinedError(
                f"Checkpoint {number}: an operator state could not be snapshotted: {shown(str(error))}."
            ) from error

    def _decide(self, pending: PendingCheckpoint, stopwatch: Stopwatch) -> CompletedCheckpoint:
        """Step 3: the decision. Before the record's create is tried everything may abort; after it nothing may."""
        completed = pending.completed(int(stopwatch.total_s * 1000), self._proofs.decided())
        try:
            decision = self.store.prepare(completed)
        except (OSError, AlreadyExistsError, UnclearOutcomeError) as error:
            raise _not_written(pending, error) from error
        pending.signal(Signal.TRIED)
        try:
            self.store.decide(decision)
        except InDoubtError:
            pending.signal(Signal.UNCLEAR)
            raise
        except FencedError:
            pending.signal(Signal.FENCED)
            raise
        except OSError as error:
            pending.signal(Signal.NOT_WRITTEN)
            raise _not_written(pending, error) from error
        pending.signal(Signal.WRITTEN)
        self._observers(
            CheckpointDecided(
                self.job,
                completed.checkpoint,
                completed.attempt,
                completed.rows,
                stopwatch.total_s,
                completed.rows_by_sink,
            )
        )
        return completed

    def _finish(self, pending: PendingCheckpoint, completed: CompletedCheckpoint, stopwatch: Stopwatch) -> None:
        """Steps 4 to 6, now or behind the next batch."""
        if self._options.max_concurrent == 1:
            self._complete(pending, completed, stopwatch)
            return
        queued = ExitStack()
        queued.enter_context(stopwatch.elsewhere())

        def complete() -> bool:
            queued.close()
            return self._complete(pending, completed, stopwatch)

        self._behind.submit(complete)

    def _complete(self, pending: PendingCheckpoint, completed: CompletedCheckpoint, stopwatch: Stopwatch) -> bool:
        """Returns whether it is committed; False if the job is stopping before that."""
        try:
            done = self._completer.finish(completed, stopwatch)
        except LostCommittableError:
            pending.signal(Signal.LOST)
            raise
        if done:
            pending.signal(Signal.PROVEN)
            self._last_commit_s = self._clock.monotonic_s()
        return done

    # -- a declined attempt --------------------------------------------------------------------------------------------

    def _decline(self, pending: PendingCheckpoint, error: DeclinedError, *, last: bool) -> bool:
        """Abort the attempt everywhere; return whether it is retried."""
        number, attempt = pending.checkpoint, pending.attempt
        reason = _reason(error, stopping=self.stopping.is_set())
        pending.signal(Signal.EXPIRED if isinstance(error, CheckpointExpiredError) else Signal.DECLINED)
        will_retry = error.restartable and reason.counts and not last and not self.stopping.is_set()
        self._observers(CheckpointDeclined(self.job, number, attempt, reason.name, str(error), will_retry))
        if not self._behind.wait(0):
            return False  # the job is stopping; the next recovery closes the attempt when it has committed the rest
        self._close_below(Attempt(attempt.generation, attempt.counter + 1))
        self.store.discard(self.lineage.id, number, attempt)
        pending.signal(Signal.CLEANED)
        self._listeners.aborted(number)
        return will_retry

    def _close_below(self, below: Attempt, restore: Restore | None = None) -> int:
        """Close all older attempts in every sink; pieces of decided checkpoints that wait for their commit stay.

        Also after a declined attempt the sinks are asked before anything is aborted: in a target that was put back, a piece
        that was committed may be prepared again.
        """
        kept = self._completer.pieces_to_commit()

        def may_abort(found: Sequence[Committable]) -> Sequence[Committable]:
            self._ask_again(restore)
            return self._completer.commit_again(found)

        orphans = {
            name: Orphans(self.job, name, sink, self._observers, may_abort) for name, sink in self._sinks.items()
        }
        return close_all(orphans, below, kept, self._observers, self._fan_out)

    def _mismatch(self, checkpoint: int, reason: str) -> OffsetMismatchError:
        return OffsetMismatchError(
            f"Job {self.job!r}: Spark runs micro-batch {checkpoint}, but {reason}. Nothing was written.",
            remedy="Spark's folder inside the job's folder was changed, or an old copy was put back: put both back from "
            "one backup, or start a new lineage with restore.path (in the plugin form: another name and checkpointLocation).",
        )


def _not_written(pending: PendingCheckpoint, error: Exception) -> DeclinedError:
    return DeclinedError(f"Checkpoint {pending.checkpoint} could not be written: {error}.")


def _reason(error: DeclinedError, *, stopping: bool) -> CheckpointFailureReason:
    if isinstance(error, CheckpointExpiredError):
        return CheckpointFailureReason.CHECKPOINT_EXPIRED
    if isinstance(error.__cause__, OSError | UnclearOutcomeError):
        return CheckpointFailureReason.IO_EXCEPTION
    if stopping:
        return CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
    return CheckpointFailureReason.CHECKPOINT_DECLINED
