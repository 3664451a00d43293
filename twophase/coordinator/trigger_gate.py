"""What keeps an attempt from beginning: the minimum pause, a stop, a folder that cannot be read."""

from __future__ import annotations

from twophase.coordinator.context import JobContext
from twophase.errors import DeclinedError
from twophase.events import CheckpointNotTriggered
from twophase.failure_reason import CheckpointFailureReason


class TriggerGate:
    """Lets attempts begin, or says why not.

    Args:
        context: the job.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._last_commit_s = float("-inf")

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
        if clock.wait(self._context.stopping, left_s):
            raise self.stopped(number)

    def stopped(self, number: int, why: str = "") -> DeclinedError:
        """Return the error for a checkpoint that does not begin because the job is stopping."""
        return self._not_triggered(
            number,
            f"Job {self._context.job!r}: checkpoint {number} was not begun: {why}the job is "
            "stopping.",
            CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN,
        )

    def cannot_trigger(self, number: int, error: OSError) -> DeclinedError:
        """Return the error for a checkpoint whose offsets, or predecessor, cannot be read."""
        return self._not_triggered(
            number,
            f"Job {self._context.job!r}: checkpoint {number} could not be triggered: {error}.",
            CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE,
        )

    def _not_triggered(
        self, number: int, what: str, reason: CheckpointFailureReason
    ) -> DeclinedError:
        error = DeclinedError(what, reason=reason)
        self._report(number, reason, str(error))
        return error

    def _report(self, number: int, reason: CheckpointFailureReason, cause: str) -> None:
        job = self._context.job
        self._context.observers(CheckpointNotTriggered(job, number, reason.name, cause))
