"""A running job of `write_stream`: the engine over Spark, and its savepoints."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twophase.contract.sink import OpenSink
from twophase.engine.engine import Engine
from twophase.errors import ConfigError, SavepointError, SavepointUnfinishedError
from twophase.events import Observers
from twophase.failure_reason import CheckpointFailureReason
from twophase.internals.logging_observer import log_event
from twophase.operations.savepoint.make import SavepointMaker, savepoint_path
from twophase.operations.savepoint.savepoint_restore import ClaimedSavepoint
from twophase.spark.job.spark_host import JobDescription, SparkHost

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Job:
    """A job that was started with `StreamWriter.start`. Safe to use from several threads.

    Attributes:
        description: what it was made from.
    """

    def __init__(self, description: JobDescription) -> None:
        self.description = description
        options, observers = description.options, Observers(log_event, *description.observers)
        self._host = host = SparkHost(description, observers)
        sinks = {name: entry.sink for name, entry in description.sinks.items()}
        self._engine = Engine(
            host,
            description.name,
            sinks,
            options,
            observers,
            listeners=(
                host.notifications,
                *host.states.listeners(),
                *description.listeners,
                ClaimedSavepoint(description.name, host.storage, options),
            ),
        )
        self._savepoints = JobSavepoints(self._engine)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.description.name

    @property
    def is_active(self) -> bool:
        """True while the job runs or waits for a restart."""
        return self._engine.is_active

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query; another one after each restart."""
        return self._host.query

    def exception(self) -> BaseException | None:
        """The error that ended the job; None while it runs and after a clean stop."""
        return self._engine.error

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended.

        Args:
            timeout_s: seconds to wait; None waits for ever.

        Returns:
            Whether it has ended.

        Raises:
            BaseException: what ended the job, unless it was stopped cleanly.
        """
        return self._engine.await_termination(timeout_s)

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the job. Undecided checkpoints are aborted; decided checkpoints are committed.

        Args:
            timeout: seconds to wait for its end; None waits for ever. A job that has not ended by
                then goes on stopping: a sink that does not answer may keep it.

        Returns:
            Whether it has ended.
        """
        return self._engine.stop(timeout)

    def savepoint(self, path: str | None = None) -> str:
        """Make a savepoint of the newest committed checkpoint, while the job runs on.

        Args:
            path: a folder, new or empty, outside the job's own; a new one in `savepoint.dir` if
                it is left out.

        Returns:
            The path, as `restore.path` takes it.

        Raises:
            ConfigError: the path is not right.
            SavepointError: there is no checkpoint yet, another savepoint is under way, or it could
                not be written. Nothing of it is left then.
        """
        return self._savepoints.make(path)

    def stop_with_savepoint(self, path: str | None = None, *, drain: bool = False) -> str:
        """Stop the job and make a savepoint of its newest checkpoint.

        The micro-batch under way is decided and committed, and no other one begins.

        Args:
            path: as for `savepoint`.
            drain: refused: Spark cannot move a query's watermark to its end.

        Returns:
            The path, as `restore.path` takes it.

        Raises:
            ConfigError: the path is not right, or `drain` is set; the job runs on.
            SavepointUnfinishedError: it is saved, but a sink has not committed its checkpoint.
            SavepointError: as for `savepoint`. If it could not be written, the job is stopped.
            TwoPhaseError: the job has ended with this error, and no savepoint was made.
        """
        return self._savepoints.stop(path, drain=drain)

    def start(self) -> None:
        """Start the job; called once by `StreamWriter.start`."""
        self._engine.start()

    def open_sinks(self) -> Mapping[str, OpenSink]:
        """Open the sinks only, and return them. Called by a repair, which starts no query."""
        return self._engine.open_sinks()


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
