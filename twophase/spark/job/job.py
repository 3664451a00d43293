"""A running job of `write_stream`: the engine over Spark, and its savepoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twophase.contract.sink import OpenSink
from twophase.engine.engine import Engine
from twophase.engine.progress import Progress, ProgressTracker, QueryProgress
from twophase.errors import ConfigError
from twophase.events import Event, JobStopped, Observers, QueryProgressed
from twophase.internals.logging_observer import log_event
from twophase.operations.savepoint.make import JobSavepoints
from twophase.spark.job.query_progress import QueryPoller
from twophase.spark.job.spark_host import JobDescription, SparkHost
from twophase.state.files.event_file import EventFile

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Job:
    """A job that was started with `StreamWriter.start`. Safe to use from several threads.

    Attributes:
        description: what it was made from.
    """

    def __init__(self, description: JobDescription) -> None:
        self.description = description
        self._tracker = ProgressTracker()
        observers = Observers(self._watch, log_event, self._tracker, *description.observers)
        options = description.options
        self._host = host = SparkHost(description, observers)
        sinks = {name: entry.sink for name, entry in description.sinks.items()}
        self._engine = Engine(
            host,
            description.name,
            sinks,
            options,
            observers,
            listeners=(host.notifications, *host.states.listeners(), *description.listeners),
        )
        observers.add(EventFile(self._engine.storage, host.clock))
        self._poller = QueryPoller(lambda: host.query, self._report)
        self._savepoints = JobSavepoints(self._engine)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.description.name

    def __repr__(self) -> str:
        """Return name, folder and status on one line; no option, since it may be a secret."""
        folder = self.description.options.checkpoint_location
        return f"<Job {self.name!r} in {folder}: {self.status}>"

    @property
    def status(self) -> Progress:
        """What this driver is doing and has done since its start."""
        return self._tracker.progress

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
            timeout_s: seconds to wait; None waits for ever. In a call of an observer, listener or
                function of the job nothing is waited for: the job waits for that call.

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
                then goes on stopping: a sink that does not answer may keep it. An observer,
                listener or function of the job may stop it, too, and waits for nothing.

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

    def stop_with_savepoint(self, path: str | None = None, *, drain: None = None) -> str:
        """Stop the job and make a savepoint of its newest checkpoint.

        The micro-batch under way is decided and committed, and no other one begins. One that waits
        for a pause, or for a sink that does not answer, is not begun either.

        Args:
            path: as for `savepoint`.
            drain: refused: Spark cannot move a query's watermark to the end of time.

        Returns:
            The path, as `restore.path` takes it.

        Raises:
            ConfigError: the path is not right, or `drain` is given; the job runs on.
            SavepointUnfinishedError: it is saved, but a sink has not committed its checkpoint.
            SavepointError: as for `savepoint`. If it could not be written, the job is stopped. An
                observer, listener or function of the job that calls this is refused; the job runs
                on.
            TwoPhaseError: the job has ended with this error, and no savepoint was made.
        """
        if drain is not None:
            raise ConfigError(
                f"Job {self.name!r}: stop_with_savepoint: argument 'drain' is not supported. The "
                "job runs on.",
                remedy="leave it out: open windows stay in the savepoint.",
            )
        return self._savepoints.stop(path)

    def start(self) -> None:
        """Start the job; called once by `StreamWriter.start`."""
        self._poller.start()
        try:
            self._engine.start()
        except BaseException:
            self._poller.stop()
            raise

    def _watch(self, event: Event) -> None:
        """Report the end of the query's progress before the end of the job."""
        if isinstance(event, JobStopped):
            self._poller.stop()

    def _report(self, progress: QueryProgress) -> None:
        self._engine.observers(
            QueryProgressed(self.name, progress.records, progress.rate, progress.lag)
        )

    def open_sinks(self) -> Mapping[str, OpenSink]:
        """Open the sinks only, and return them. Called by a repair, which starts no query."""
        return self._engine.open_sinks()
