"""Reasons why a checkpoint failed, by the names of Flink's CheckpointFailureReason.

Whoever finds the failure says the reason: a `DeclinedError` carries it.
"""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """A reason, its message, and whether it counts against `checkpoint.tolerable_failures`.

    Those that count are the ones that Flink's CheckpointFailureManager counts. Reasons marked "not
    raised on Spark" have no counterpart there; docs/failure-reasons.md says what covers each.
    """

    TOO_MANY_CHECKPOINT_REQUESTS = (
        "The maximum number of queued checkpoint requests is exceeded.",
        False,
    )
    PERIODIC_SCHEDULER_SHUTDOWN = "The query is stopping.", False
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = (
        "The minimum pause between checkpoints is still pending.",
        False,
    )
    NOT_ALL_REQUIRED_TASKS_RUNNING = "Not all sinks are open.", False
    EXCEPTION = "An exception occurred while triggering the checkpoint.", False
    IO_EXCEPTION = "The checkpoint could not be written.", True
    CHECKPOINT_ASYNC_EXCEPTION = "The snapshot of an operator state failed.", True
    CHECKPOINT_EXPIRED = "The checkpoint expired before it was complete.", True
    CHECKPOINT_SUBSUMED = "The checkpoint was subsumed by a newer one.", False
    CHECKPOINT_DECLINED = "A sink declined the checkpoint.", True
    CHECKPOINT_DECLINED_TASK_NOT_READY = "A sink was not ready.", False
    CHECKPOINT_DECLINED_TASK_CLOSING = "A sink was closing.", False
    CHECKPOINT_DECLINED_SUBSUMED = "A newer barrier arrived (not raised on Spark).", False
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = (
        "The input was cancelled (not raised on Spark).",
        False,
    )
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "An input has finished (not raised on Spark).", False
    CHECKPOINT_COORDINATOR_SHUTDOWN = "The coordinator is shut down.", False
    CHECKPOINT_COORDINATOR_SUSPEND = "The coordinator is suspended.", False
    JOB_FAILOVER_REGION = "A failover region restarts (not raised on Spark).", False
    TASK_FAILURE = "A task failed.", False
    TASK_CHECKPOINT_FAILURE = "A task failed while it pre-committed.", False
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = "An unknown task reported a failure.", False
    FINALIZE_CHECKPOINT_FAILURE = "The completed checkpoint could not be decided.", True
    TRIGGER_CHECKPOINT_FAILURE = "The checkpoint could not be triggered.", False

    def __init__(self, message: str, counts: bool) -> None:
        self.message = message
        self.counts = counts
