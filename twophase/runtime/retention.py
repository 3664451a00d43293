"""What becomes of the checkpoints of a job that has ended (`checkpoint.externalized_retention`).

A job is cancelled when it is stopped before its query ends by itself. One whose query has ended by
itself (`availableNow`) keeps its checkpoints: the next start goes on from them.
"""

from __future__ import annotations

import logging
import shutil

from twophase.config import ExternalizedRetention
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.release import release_checkpoints
from twophase.errors import SparkLostError, StopJobError
from twophase.runtime.job_parts import JobParts

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


def release(parts: JobParts, coordinator: CheckpointCoordinator) -> None:
    """Delete the checkpoints of a job that has ended; those that cannot be given up are kept.

    Args:
        parts: of the job; its sinks are open.
        coordinator: of the last run of its query, which has ended.
    """
    context = coordinator.context
    try:
        released = release_checkpoints(context, coordinator.attempts, coordinator.closer)
    except Exception as error:  # noqa: BLE001 the job has ended; what it has is kept
        _log.warning("Job %r: its checkpoints are not deleted: %s", parts.name, error)
        return
    if not released:
        history = context.log.history
        if history.uncommitted() or history.sink_decisions:
            _log.warning("Job %r: its checkpoints are kept: one is not committed yet.", parts.name)
        return
    for lineage in context.log.history.lineages:
        shutil.rmtree(parts.storage.root / "spark" / lineage.id, ignore_errors=True)
