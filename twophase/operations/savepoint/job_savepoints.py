"""Savepoints of a job in this process: one at a time, while it runs or when it stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from twophase.engine.engine import Engine
from twophase.errors import ConfigError, SavepointError, SavepointUnfinishedError
from twophase.failure_reason import CheckpointFailureReason
from twophase.operations.savepoint.make import SavepointMaker, savepoint_path


class JobSavepoints:
    """Makes the savepoints of a job: one at a time, while it runs or when it stops.

    Args:
        engine: of the job.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = engine.job
        self._options = options = engine.options
        self._maker = SavepointMaker(engine.job, engine.storage.root, engine.clock, options.copies)
        self._lock = threading.Lock()

    def make(self, path: str | None) -> str:
        """Make a savepoint of the newest committed checkpoint; return its path.

        Args:
            path: the savepoint's folder; None for a new one in `savepoint.dir`.

        Raises:
            ConfigError: the path is not right.
            SavepointError: another one is under way, or this one could not be made.
        """
        path = savepoint_path(self._name, path, self._options)
        with self._alone():
            self._maker.make(path, committed_only=True, still_waiting=self._engine.still_runs)
        return path

    def stop(self, path: str | None, *, drain: bool) -> str:
        """Stop the job after its micro-batch, then make a savepoint of its newest checkpoint.

        Args:
            path: as for `make`.
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
            self._engine.stop_after_batch()
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
