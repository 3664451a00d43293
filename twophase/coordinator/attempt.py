"""One attempt at a checkpoint, from its trigger to its decision.

    3. pre-commit    the caller's function lets every sink write
    4. acknowledge   and acknowledges for each
    5. decide        the body, then the record DECIDED(n) in the log. This is the decision

`TriggerGate` keeps an attempt from beginning: after a stop, in the minimum pause, and if the folder
cannot be read. The state machine says what follows each step (`coordinator.commit.state_machine`):
the attempt signals what has happened, and does what the answer is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.commit.state_machine import Action, Signal
from twophase.errors import (
    CheckpointExpiredError,
    DeclinedError,
    FencedError,
    InDoubtError,
    fingerprint_of,
)
from twophase.events import CheckpointDecided, CheckpointNotTriggered
from twophase.failure_reason import CheckpointFailureReason
from twophase.internals.clock import Stopwatch
from twophase.internals.failpoints import failpoint
from twophase.internals.redaction import shown
from twophase.state.checkpoints.checkpoint import (
    CompletedCheckpoint,
    FrozenOffsets,
    OperatorStateFields,
)
from twophase.state.files.storage import AlreadyExistsError, UnclearOutcomeError
from twophase.state.journal.stats import CheckpointStats, DeclinedAttempt

Snapshot = Callable[[int, FrozenOffsets], OperatorStateFields]
"""Returns the operator states for a checkpoint; an exception declines the attempt."""


class TriggerGate:
    """Lets attempts begin, or says why not.

    Args:
        context: the job.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._last_commit_s = float("-inf")
        self._waits = self._closes = self._stays = False
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, number: int, *, closes: bool = False) -> Iterator[None]:
        """Wait in the block for what comes before the trigger; a stop need not outwait it.

        Args:
            number: n.
            closes: whether an older attempt is being closed, which takes a moment only.

        Raises:
            DeclinedError: `stop_if_waiting` has stopped the job meanwhile.
        """
        self._closes, self._waits = closes, True
        try:
            yield
        finally:
            with self._lock:
                self._waits = False
        if self._stays:
            raise self.stopped(number)

    def stop_if_waiting(self, *, but_for_a_moment: bool) -> bool:
        """Stop the job if an attempt waits for its trigger; return whether it does.

        Args:
            but_for_a_moment: not if it waits until an older attempt is closed.
        """
        with self._lock:
            if not self._waits or (self._closes and but_for_a_moment):
                return False
            self._stays = True
            self._context.stopping.set()
            return True

    def committed(self) -> None:
        """Note that a checkpoint was committed: the pause begins."""
        self._last_commit_s = self._context.clock.monotonic_s()

    def pause(self, number: int) -> None:
        """Keep `checkpoint.min_pause` between a commit and the next trigger.

        Raises:
            DeclinedError: the job was stopped meanwhile.
        """
        clock, pause_s = self._context.clock, self._context.options.min_pause_s
        left_s = self._last_commit_s + pause_s - clock.monotonic_s()
        if left_s <= 0:
            return
        self._report(
            number,
            CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS,
            f"checkpoint.min_pause ({pause_s:g} s) ends in {left_s:.3g} s",
        )
        with self.waiting(number):
            if clock.wait(self._context.stopping, left_s):
                raise self.stopped(number)

    def stopped(self, number: int, why: str = "") -> DeclinedError:
        """Return the error for a checkpoint that does not begin because the job is stopping."""
        return self._not_triggered(
            number,
            f"Job {self._context.job!r}: checkpoint {number} did not begin: {why}the job is "
            "stopping.",
            CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN,
        )

    def cannot_trigger(self, number: int, error: OSError) -> DeclinedError:
        """Return the error for a checkpoint whose offsets, or predecessor, cannot be read."""
        declined = self._not_triggered(
            number,
            f"Job {self._context.job!r}: checkpoint {number} could not be triggered: {error}.",
            CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE,
        )
        declined.fingerprint = fingerprint_of(error)
        return self._context.failures.judge(number, declined)

    def _not_triggered(
        self, number: int, what: str, reason: CheckpointFailureReason
    ) -> DeclinedError:
        error = DeclinedError(what, reason=reason)
        self._report(number, reason, str(error))
        return error

    def _report(self, number: int, reason: CheckpointFailureReason, cause: str) -> None:
        job = self._context.job
        self._context.observers(CheckpointNotTriggered(job, number, reason.name, cause))


class CheckpointAttempt:
    """One attempt at a checkpoint.

    Args:
        context: the job.
        pending: the checkpoint, triggered.
        snapshot: of the operator states.
        already_s: how long it has been under way in other processes.

    Attributes:
        pending: as given.
        stopwatch: runs since the trigger.
    """

    def __init__(
        self,
        context: JobContext,
        pending: PendingCheckpoint,
        snapshot: Snapshot,
        already_s: float = 0.0,
    ) -> None:
        self.pending = pending
        self.stopwatch = Stopwatch(context.clock, already_s)
        self._acknowledged_s = self._decided_s = 0.0
        self._size_bytes = 0
        self._context = context
        self._snapshot = snapshot
        self._completed: CompletedCheckpoint | None = None
        self._error: Exception | None = None

    @property
    def completed(self) -> CompletedCheckpoint:
        """The decided checkpoint; only after the decision."""
        if self._completed is None:
            raise AssertionError(f"checkpoint {self.pending.checkpoint} is not decided")
        return self._completed

    @property
    def error(self) -> Exception:
        """Why the attempt was declined or must stop; only after ABORT or STOP."""
        if self._error is None:
            raise AssertionError(
                f"checkpoint {self.pending.checkpoint} has not failed: {self.pending.phase.name}"
            )
        return self._error

    def run(self, pre_commit: Callable[[PendingCheckpoint], None]) -> Action:
        """Steps 3 to 5.

        Args:
            pre_commit: lets every sink write and acknowledges for each; when it raises, all
                its tasks have ended.

        Returns:
            COMMIT: it is decided. ABORT: it is declined, and its pieces must be aborted. STOP: the
            job must stop. With the last two `error` says why.

        Raises:
            StopJobError: raised by `pre_commit` or by the log; the job must stop.
        """
        try:
            action = self._pre_commit(pre_commit)
            return self._decide() if action is Action.DECIDE else action
        except DeclinedError as error:
            return self._decline(error)

    def stats(self, declined: Sequence[DeclinedAttempt]) -> CheckpointStats:
        """Return the history of the checkpoint, which every sink has just proven committed.

        Args:
            declined: the attempts before this one.
        """
        committed_s = self.stopwatch.total_s
        return CheckpointStats(
            self.pending.lineage,
            self.pending.checkpoint,
            round(self._acknowledged_s * 1000),
            round((self._decided_s - self._acknowledged_s) * 1000),
            round((committed_s - self._decided_s) * 1000),
            self._size_bytes,
            tuple(declined),
        )

    def _pre_commit(self, pre_commit: Callable[[PendingCheckpoint], None]) -> Action:
        """Steps 3 and 4."""
        pending = self.pending
        pending.operator_states = self._states()
        failpoint("C02")
        with self.stopwatch.elsewhere():
            pre_commit(pending)
        self._acknowledged_s = self.stopwatch.total_s
        failpoint("C06")
        if missing := pending.missing():
            raise DeclinedError(
                f"Checkpoint {pending.checkpoint} was not acknowledged by {', '.join(missing)}."
            )
        return pending.action

    def _states(self) -> OperatorStateFields:
        number = self.pending.checkpoint
        try:
            with self._context.listeners.called():
                return self._snapshot(number, self.pending.offsets)
        except Exception as error:
            raise DeclinedError(
                f"Checkpoint {number}: an operator state could not be snapshotted: "
                f"{shown(str(error))}.",
                reason=CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
                fingerprint=fingerprint_of(error),
            ) from error

    def _decide(self) -> Action:
        """Step 5: the decision. All may abort before the record's create is tried, none after."""
        pending, store = self.pending, self._context.store
        duration_ms = int(self.stopwatch.total_s * 1000)
        completed = pending.completed(duration_ms, self._context.proofs.decided())
        try:
            decision = store.prepare(completed)
        except (OSError, AlreadyExistsError, UnclearOutcomeError) as error:
            reason = CheckpointFailureReason.IO_EXCEPTION
            raise _not_written(pending, error, reason) from error
        pending.signal(Signal.TRIED)
        try:
            store.decide(decision)
        except InDoubtError as error:
            return self._end(Signal.UNCLEAR, error)
        except FencedError as error:
            return self._end(Signal.FENCED, error)
        except OSError as error:
            reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
            declined = _not_written(pending, error, reason)
            declined.__cause__ = error
            return self._end(Signal.NOT_WRITTEN, declined)
        self._completed = completed
        self._decided_s, self._size_bytes = self.stopwatch.total_s, store.prepared_bytes
        action = pending.signal(Signal.WRITTEN)
        self._report_decision(completed)
        return action

    def _report_decision(self, completed: CompletedCheckpoint) -> None:
        self._context.observers(
            CheckpointDecided(
                completed.job,
                completed.checkpoint,
                completed.attempt,
                completed.rows,
                self.stopwatch.total_s,
                completed.rows_by_sink,
            )
        )

    def _decline(self, error: DeclinedError) -> Action:
        expired = isinstance(error, CheckpointExpiredError)
        judged = self._context.failures.judge(self.pending.checkpoint, error)
        return self._end(Signal.EXPIRED if expired else Signal.DECLINED, judged)

    def _end(self, signal: Signal, error: Exception) -> Action:
        self._error = error
        return self.pending.signal(signal)


def _not_written(
    pending: PendingCheckpoint, error: Exception, reason: CheckpointFailureReason
) -> DeclinedError:
    return DeclinedError(
        f"Checkpoint {pending.checkpoint} could not be written: {error}.",
        reason=reason,
        fingerprint="" if isinstance(error, UnclearOutcomeError) else fingerprint_of(error),
    )
