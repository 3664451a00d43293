"""Savepoints of a job in this process: one at a time, while it runs or when it stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from twophase.coordinator.clock import SystemClock
from twophase.errors import ConfigError, SavepointError, SavepointUnfinishedError
from twophase.failure_reason import CheckpointFailureReason
from twophase.runtime.job_parts import JobParts
from twophase.runtime.savepoints import SavepointMaker, StillWaiting, savepoint_path


class JobSavepoints:
    """Makes the savepoints of a job.

    Args:
        parts: of the job.
    """

    def __init__(self, parts: JobParts) -> None:
        self._name = parts.name
        self._options = options = parts.description.options
        self._maker = SavepointMaker(parts.name, parts.storage.root, SystemClock(), options.copies)
        self._lock = threading.Lock()

    def make(self, path: str | None, still_waiting: StillWaiting) -> str:
        """Make a savepoint of the newest committed checkpoint; return its path.

        Args:
            path: the savepoint's folder; None for a new one in `savepoint.dir`.
            still_waiting: says how long to wait for Spark.

        Raises:
            ConfigError: the path is not right.
            SavepointError: another one is under way, or this one could not be made.
        """
        path = savepoint_path(self._name, path, self._options)
        with self._alone():
            self._maker.make(path, committed_only=True, still_waiting=still_waiting)
        return path

    def stop(self, path: str | None, stop: Callable[[], None], *, drain: bool) -> str:
        """Stop the job after its micro-batch, then make a savepoint of its newest checkpoint.

        Args:
            path: as for `make`.
            stop: stops the job when the micro-batch under way is decided.
            drain: refused.

        Raises:
            ConfigError: `drain` is set.
            SavepointUnfinishedError: it is saved, and its checkpoint is not committed yet.
            SavepointError: another one is under way, or this one could not be made.
        """
        if drain:
            raise _cannot_drain(self._name)
        path = savepoint_path(self._name, path, self._options)
        with self._alone():
            self._maker.check(path)
            stop()
            manifest = self._maker.make(path, still_waiting=lambda: False)
        if manifest.pending:
            raise SavepointUnfinishedError(
                f"Job {self._name!r} has stopped and savepoint {path} is complete, but "
                f"checkpoint {manifest.checkpoint} is not committed in every sink yet.",
                remedy=f"once the sinks are reachable: twophase savepoint finish JOB.yaml {path}",
            )
        return path

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            reason = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.name
            raise SavepointError(
                f"Job {self._name!r}: another savepoint is in progress ({reason}). "
                "Nothing was written.",
                remedy="wait until it is complete, then try again.",
            )
        try:
            yield
        finally:
            self._lock.release()


def _cannot_drain(job: str) -> ConfigError:
    return ConfigError(
        f"Job {job!r}: drain is not supported. Draining fires all event-time timers "
        "and closes all windows, as if the sources had ended; Spark has no way to move a "
        "query's watermark to the end of time. The job was not stopped.",
        remedy="stop it with drain=False: open windows stay in the savepoint.",
    )
