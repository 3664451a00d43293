"""Retention of a finished job's checkpoints (`checkpoint.externalized_retention`).

A job is cancelled when it is stopped before its query ends by itself. One whose query has ended by
itself (`availableNow`) keeps its checkpoints: the next start goes on from them.
"""

from __future__ import annotations

import logging

from twophase.coordinator.release import release_checkpoints
from twophase.engine.run import Run
from twophase.errors import SparkLostError, StopJobError
from twophase.options.job_options import ExternalizedRetention

_log = logging.getLogger("twophase")


def is_due(policy: ExternalizedRetention, error: BaseException | None, *, stopped: bool) -> bool:
    """Return whether a job that has ended gives up its checkpoints.

    Args:
        policy: of the job.
        error: what ended it, if it failed. After one that an operator has to look at, and
            after the end of Spark, checkpoints are kept, whatever the policy.
        stopped: whether it was stopped.
    """
    if error is not None:
        may_delete = policy is ExternalizedRetention.NO_EXTERNALIZED_CHECKPOINTS
        return may_delete and not isinstance(error, StopJobError | SparkLostError)
    return stopped and policy is not ExternalizedRetention.RETAIN_ON_CANCELLATION


def release(run: Run) -> None:
    """Delete the checkpoints of a job that has ended; those that cannot be given up are kept.

    Args:
        run: the last one, which has ended; the job's sinks are open.
    """
    context, coordinator = run.context, run.coordinator
    try:
        released = release_checkpoints(context, coordinator.attempts, coordinator.closer)
    except Exception as error:  # noqa: BLE001 the job has ended; what it has is kept
        _log.warning("Job %r: its checkpoints are not deleted: %s", context.job, error)
        return
    history = run.history
    if not released and (history.uncommitted() or history.sink_decisions):
        _log.warning("Job %r: its checkpoints are kept: one is not committed yet.", context.job)
