"""The checkpoint coordinator: takes a checkpoint through the steps of docs/architecture.md.

    1.         trigger: here; 2. materialise is the host's
    3. to 5.   pre-commit, acknowledge, decide: `coordinator.attempt`
    6. to 9.   commit, sweep, subsume, notify: `coordinator.commit.checkpoint_completion`

A failure before the decision declines the attempt: its pieces are aborted, its attempt is closed in
every sink, and it is retried whole while `checkpoint.tolerable_failures` allows. A failure after
the decision aborts nothing.

A sink may commit ahead of the others (`coordinator.commit.sink_decisions`). It keeps what it has
when an attempt is declined, and the retry does not ask it again.

With `checkpoint.max_concurrent` above 1 a thread takes steps 6 to 9 while the next checkpoints take
1 to 5 (`coordinator.commit.commit_queue`). An attempt is only closed when nothing is left to
commit: its fence would wait for what is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

from twophase.contract.committable import Committable
from twophase.coordinator.attempt import CheckpointAttempt, Snapshot, TriggerGate
from twophase.coordinator.commit.commit_queue import CommitQueue, Spawn, plain_thread
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.commit.state_machine import Action, Signal
from twophase.coordinator.recovery.plan import Restore
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.coordinator.recovery.recovery import AttemptCloser, DriverRecovery
from twophase.coordinator.recovery.recovery_steps import commit_in_order
from twophase.errors import (
    CheckpointMissingError,
    DeclinedError,
    FenceLostError,
    LostCommittableError,
    OffsetMismatchError,
)
from twophase.events import (
    CheckpointDeclined,
    CheckpointReplayed,
    CheckpointTriggered,
    TolerableFailuresExceeded,
)
from twophase.failure_reason import CheckpointFailureReason
from twophase.ids import Attempt, AttemptSequence
from twophase.internals.failpoints import failpoint
from twophase.options.job_options import CheckpointMode
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.entries import Decision, Lineage
from twophase.state.journal.history import History
from twophase.state.journal.stats import DeclinedAttempt

_CAUSE_CHARS = 500
_CAUSED_BY_STOP = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.EXCEPTION,
        CheckpointFailureReason.TASK_CHECKPOINT_FAILURE,
        CheckpointFailureReason.TASK_FAILURE,
    }
)
"""A stop cancels Spark's jobs: a failure with one of these reasons during a stop is due to it."""


@dataclass(frozen=True)
class Replay:
    """Spark runs a micro-batch again whose checkpoint is decided: no sink writes."""

    decision: Decision


@dataclass(frozen=True)
class Write:
    """The micro-batch is new."""


class CheckpointCoordinator:
    """Coordinates the checkpoints of one job, as one driver.

    For one thread at a time, apart from `context.stopping`.

    Args:
        context: the job, as this driver sees it.
        snapshot: returns the operator states for a checkpoint; an exception declines the attempt.
        spawn: makes the thread that commits while the next batch runs.
        on_failure: called by that thread when a decided checkpoint cannot be committed
            and the job must end.

    Attributes:
        context: as given.
        job: the job's name.
        sinks: the job's, by name.
        options: the job's.
        attempts: numbers its attempts.
        closer: closes older attempts in the sinks.
    """

    def __init__(
        self,
        context: JobContext,
        *,
        snapshot: Snapshot,
        spawn: Spawn = plain_thread,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.context = context
        self.job, self.sinks, self.options = context.job, context.sinks, context.options
        self.attempts = AttemptSequence()
        planner = StartPlanner(context)
        self.closer = AttemptCloser(context, planner)
        self._recovery = DriverRecovery(context, self.attempts, planner, self.closer)
        self._snapshot = snapshot
        self._gate = TriggerGate(context)
        self._commit_queue = CommitQueue(spawn, on_failure)

    @property
    def history(self) -> History:
        """What the job's log says, as of its last read or append."""
        return self.context.history

    @property
    def generation(self) -> int:
        """This driver's generation, once it has taken the job over; 0 before."""
        return self.attempts.generation

    @property
    def lineage(self) -> Lineage:
        """The current lineage.

        Raises:
            CheckpointMissingError: none has begun.
        """
        if self.history.lineage is None:
            raise CheckpointMissingError(f"Job {self.job!r} has no lineage yet.")
        return self.history.lineage

    def newest(self) -> Decision | None:
        """The newest decided checkpoint of the current lineage."""
        return self.history.newest(self.lineage.id)

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the commit queue, if any."""
        return self._commit_queue.failure

    def close(self, *, retry: bool = False) -> None:
        """Wait until nothing is being committed any more. The next recovery commits what is left.

        Args:
            retry: until everything is committed or the job is stopped; otherwise what is
                left is tried once.
        """
        if not retry:
            self.context.stopping.set()
        self._commit_queue.close()

    def stop_if_waiting(self) -> bool:
        """Stop the job if its next attempt is not triggered, but waits; return whether it does.

        It waits for older ones to be committed, or for a pause. If it waits until an older attempt
        is closed, or while a sink is ahead, before whose checkpoint is whole no savepoint can be
        made, the job is only stopped if a sink does not answer. Called from any thread.
        """
        retries = self.context.commit_loop.is_retrying
        if self.history.sink_decisions and not retries:
            return False
        return self._gate.stop_if_waiting(but_for_a_moment=not retries)

    def recover(
        self, previous_generation: int | None = None, restore: Restore | None = None
    ) -> None:
        """Take the job over, and finish what older drivers left, as `coordinator.recovery.recovery`
        does.

        Args:
            previous_generation: the generation of this very driver before a restart; it is fenced
                if the log has a newer one.
            restore: the restore whose lineage is about to begin, if any.

        Raises:
            StopJobError: the job must not go on.
        """
        self._recovery.run(previous_generation, restore)

    def begin_lineage(self, fresh: Lineage) -> None:
        """Begin the lineage that `recover` has planned, or else a fresh one."""
        self.context.log.append(self._recovery.plan.begins or fresh)

    def classify(self, checkpoint: int, offsets: FrozenOffsets) -> Write | Replay:
        """Decide what to do with micro-batch n: write it, or recognise it as decided.

        Raises:
            OffsetMismatchError: Spark's folder and the store do not belong together.
        """
        newest = self.newest()
        self._check_ahead(checkpoint, offsets)
        if newest is None:
            if checkpoint == self.lineage.first_checkpoint:
                return Write()
            raise self._mismatch(
                checkpoint,
                f"the store expects its first checkpoint, {self.lineage.first_checkpoint}",
            )
        if checkpoint == newest.checkpoint:
            if offsets.hash == newest.offsets_hash:
                return Replay(newest)
            raise self._mismatch(checkpoint, "it is decided with other offsets")
        if checkpoint != newest.checkpoint + 1:
            raise self._mismatch(
                checkpoint, f"the newest decided checkpoint is {newest.checkpoint}"
            )
        if self.context.store.read(newest).offsets.end != offsets.start:
            raise self._mismatch(
                checkpoint, f"it does not begin where checkpoint {newest.checkpoint} ended"
            )
        return Write()

    def _check_ahead(self, checkpoint: int, offsets: FrozenOffsets) -> None:
        """Check that a sink that is ahead has the rows of these offsets."""
        for ahead in self.history.sink_decisions:
            if ahead.checkpoint == checkpoint and ahead.offsets_hash != offsets.hash:
                raise self._mismatch(
                    checkpoint, f"sink {ahead.sink!r} has committed it with other offsets"
                )

    def replay(self, decision: Decision, execute: Callable[[], None] | None) -> None:
        """Handle a decided micro-batch again: commit what is not committed, call no sink to write.

        A committed one is asked for again, unless the recovery of this driver has
        just committed it.

        Args:
            decision: as `classify` returned it.
            execute: runs the batch without sinks, for plans with state or a watermark (hazard H42).
        """
        self._commit_queue.wait(0)
        if not decision.committed:
            commit_in_order(self.history.uncommitted(), self.context.completer.commit_decided)
        elif (decision.lineage, decision.checkpoint) != self._recovery.recommitted:
            self.context.completer.commit_decided(decision)
        if execute is not None:
            execute()
        self.context.observers(
            CheckpointReplayed(self.job, decision.checkpoint, execute is not None)
        )

    def cannot_trigger(self, number: int, error: OSError) -> DeclinedError:
        """Report that the trigger cannot read what it needs; return the error to raise.

        Args:
            number: n.
            error: of Spark's offset log, or of the store.
        """
        return self._gate.cannot_trigger(number, error)

    def checkpoint(
        self,
        number: int,
        offsets: FrozenOffsets,
        pre_commit: Callable[[PendingCheckpoint], None],
        triggered_ms: int | None = None,
    ) -> None:
        """Take checkpoint `number`. Returns only once it is decided.

        Args:
            number: n.
            offsets: as `classify` accepted them.
            pre_commit: lets every sink write and acknowledges for each; when it raises, all
                its tasks have ended.
            triggered_ms: Unix time of its trigger, if that was in another process.

        Raises:
            DeclinedError: no attempt was decided; nothing of it is visible.
            StopJobError: the job must stop.
        """
        self._make_room(number)
        while True:
            self._gate.pause(number)
            failpoint("C01")
            attempt = self._trigger(number, offsets, triggered_ms)
            match attempt.run(pre_commit):
                case Action.COMMIT:
                    self._complete(attempt, self.context.failures.succeeded())
                    return
                case Action.ABORT if self._decline(attempt):
                    continue
                case _:  # ABORT, and no attempt is left; or STOP
                    raise attempt.error

    def _make_room(self, number: int) -> None:
        """Commit decided checkpoints, except those that may be under way, before the next (HD4)."""
        at_most = self.options.max_concurrent - 1
        waits = len(self.history.uncommitted()) > at_most
        with self._gate.waiting(number) if waits else nullcontext():
            if at_most:
                self._commit_queue.wait(at_most)
            else:
                commit_in_order(self.history.uncommitted(), self.context.completer.commit_decided)
        left = self.history.uncommitted()
        if len(left) > at_most:  # only a stop leaves something over
            raise self._gate.stopped(
                number, f"checkpoint {left[0].checkpoint} is decided but not committed yet, and "
            )

    def _trigger(
        self, number: int, offsets: FrozenOffsets, triggered_ms: int | None
    ) -> CheckpointAttempt:
        """Step 1."""
        ahead, mode = self.context.sink_decisions, self.options.mode
        attempt, now_ms = self.attempts.next(), self.context.clock.unix_ms()
        trigger_time_ms = now_ms if triggered_ms is None else min(triggered_ms, now_ms)
        self.context.observers(CheckpointTriggered(self.job, number, attempt))
        pending = PendingCheckpoint(
            job=self.job,
            lineage=self.lineage.id,
            checkpoint=number,
            attempt=attempt,
            offsets=offsets,
            sinks=tuple(self.sinks),
            trigger_time_ms=trigger_time_ms,
            decided=self.decided_sinks(number),
            decide_sink=ahead.decide if mode is CheckpointMode.AT_LEAST_ONCE else None,
        )
        already_s = (now_ms - trigger_time_ms) / 1000
        return CheckpointAttempt(self.context, pending, self._snapshot, already_s)

    def decided_sinks(self, number: int) -> dict[str, Sequence[Committable]]:
        """Return the pieces of each sink that is ahead in a checkpoint, by the sink's name.

        A sink whose pieces were all given up may have left the job.
        """
        found = self.context.sink_decisions.pieces_of(self.lineage.id, number)
        return {sink: pieces for sink, pieces in found.items() if sink in self.sinks}

    def _complete(self, attempt: CheckpointAttempt, declined: Sequence[DeclinedAttempt]) -> None:
        """Run steps 6 to 9, now or behind the next batch."""
        if self.options.max_concurrent == 1:
            self._complete_now(attempt, declined)
            return
        queued = ExitStack()
        queued.enter_context(attempt.stopwatch.elsewhere())

        def complete() -> bool:
            queued.close()
            return self._complete_now(attempt, declined)

        self._commit_queue.submit(complete)

    def _complete_now(
        self, attempt: CheckpointAttempt, declined: Sequence[DeclinedAttempt]
    ) -> bool:
        """Return whether it is committed; False if the job stopped before that."""
        completer, pending = self.context.completer, attempt.pending
        try:
            done = completer.commit(attempt.completed, attempt.stopwatch)
        except LostCommittableError:
            pending.signal(Signal.LOST)
            raise
        if not done:
            return False
        if pending.signal(Signal.PROVEN) is Action.SUBSUME:
            completer.complete(attempt.completed, attempt.stopwatch, attempt.stats(declined))
        self._gate.committed()
        return True

    def _decline(self, attempt: CheckpointAttempt) -> bool:
        """Abort the attempt everywhere; return whether it is retried."""
        pending, error, stopping = attempt.pending, attempt.error, self.context.stopping.is_set()
        if not isinstance(error, DeclinedError):
            raise error
        if stopping and error.reason in _CAUSED_BY_STOP:
            error.reason = (
                CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
                if self._commit_queue.failure is None
                else CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
            )
        will_retry = self._tolerates(pending.checkpoint, error) and not stopping
        self._note_declined(pending, error, will_retry=will_retry)
        with self._gate.waiting(pending.checkpoint, closes=True):
            return self._close(pending) and will_retry

    def _close(self, pending: PendingCheckpoint) -> bool:
        """Close a declined attempt in every sink; return False if the job stops before that.

        The next recovery closes it then, when it has committed the rest.
        """
        if not self._commit_queue.wait(0) or not self.context.sink_decisions.commit():
            return False
        self.closer.close_below(Attempt(pending.attempt.generation, pending.attempt.counter + 1))
        self.context.store.discard(self.lineage.id, pending.checkpoint, pending.attempt)
        pending.signal(Signal.CLEANED)
        self.context.listeners.aborted(pending.checkpoint)
        return True

    def _note_declined(
        self, pending: PendingCheckpoint, error: DeclinedError, *, will_retry: bool
    ) -> None:
        reason, cause = error.reason.name, str(error)
        kept = "" if will_retry else cause[:_CAUSE_CHARS]
        self.context.failures.remember(DeclinedAttempt(pending.attempt, reason, kept))
        where = (self.job, pending.checkpoint, pending.attempt)
        self.context.observers(CheckpointDeclined(*where, reason, cause, will_retry))

    def _tolerates(self, number: int, error: DeclinedError) -> bool:
        """Count the failure; report it if it exceeds the limit."""
        failures = self.context.failures
        tolerated = failures.tolerates(error.reason)
        if error.reason.counts and not tolerated:
            limit = self.options.tolerable_failures
            self.context.observers(
                TolerableFailuresExceeded(
                    self.job, number, limit + 1, error.reason.name, str(error)
                )
            )
        # a target that has lost its fence is looked at by a start before anything is decided
        return error.restartable and tolerated and not isinstance(error, FenceLostError)

    def _mismatch(self, checkpoint: int, reason: str) -> OffsetMismatchError:
        return OffsetMismatchError(
            f"Job {self.job!r}: Spark runs micro-batch {checkpoint}, but {reason}. "
            "Nothing was written.",
            remedy="Spark's folder inside the job's folder was changed, or replaced by an old "
            "copy: restore it as it was after the newest checkpoint, and leave the rest of the "
            "job's folder as it is; or start a new lineage with restore.path (in the plugin form: "
            "another name and checkpointLocation).",
        )
