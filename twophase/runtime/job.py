"""A running job: open, recover, start the query, restart it, stop it.

1. claim      no second query on this folder in this process (hazard H57)
2. open       every sink checks its target, side by side
3. to 6.      recover, lineage, folder, query: a run of the query (runtime/query_run.py)
7. watch      a failed query goes back to step 3 after the delay of the restart strategy
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark import InheritableThread

from twophase.errors import ConfigError, SparkLostError, StopJobError, TwoPhaseError, carried
from twophase.events import JobRestarting, JobStopped
from twophase.runtime import retention
from twophase.runtime.job_parts import JobDescription, JobParts
from twophase.runtime.job_savepoints import JobSavepoints
from twophase.runtime.query_run import QueryRun
from twophase.runtime.restart import restart_policy
from twophase.runtime.spark_errors import failure
from twophase.runtime.worker_interpreter import restore_worker_python

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_claimed: dict[str, str] = {}
_claims_lock = threading.Lock()


class Job:
    """A job that was started with `StreamWriter.start`. Safe to use from several threads."""

    def __init__(self, description: JobDescription) -> None:
        self._parts = JobParts(description)
        self._savepoints = JobSavepoints(self._parts)
        self._stopping = threading.Event()
        self._is_saved = False
        self._finished = threading.Event()
        self._run: QueryRun | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The job's name."""
        return self._parts.name

    @property
    def description(self) -> JobDescription:
        """The description that it was made from."""
        return self._parts.description

    @property
    def is_active(self) -> bool:
        """True while the job runs or waits for a restart."""
        return not self._finished.is_set()

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query; another one after each restart."""
        return self._run.query if self._run else None

    def exception(self) -> BaseException | None:
        """The error that ended the job; None while it runs and after a clean stop."""
        return self._error

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended.

        Args:
            timeout_s: seconds to wait; None waits for ever.

        Returns:
            Whether it has ended.

        Raises:
            BaseException: what ended the job, unless it was stopped cleanly.
        """
        ended = self._finished.wait(timeout_s)
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Stop the job. Undecided checkpoints are aborted; decided checkpoints are committed."""
        self._stopping.set()
        with self._lock:
            run = self._run
        if run is not None:
            run.stop()
        self._finished.wait()

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
        return self._savepoints.make(path, lambda: self._run is not None and self._run.still_runs())

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
        return self._savepoints.stop(path, self._stop_after_batch, drain=drain)

    def _stop_after_batch(self) -> None:
        self._is_saved = True
        self._stopping.set()
        with self._lock:
            run = self._run
        if run is not None and not self._finished.is_set():
            run.stop_after_batch()
        self.await_termination()

    def start(self) -> None:
        """Steps 1 to 6; called once by `StreamWriter.start`."""
        self._claim()
        try:
            self.open_sinks()
            self._new_run().start()
        except BaseException:
            self._close()
            self._finished.set()
            raise
        # A plain thread has none of the caller's local properties, such as the scheduler pool, so a
        # restart would lose them.
        InheritableThread(target=self._watch, name=f"twophase-{self.name}", daemon=True).start()

    def open_sinks(self) -> None:
        """Step 2. Called by `start`, and by a repair, which starts no query."""
        self._parts.open_sinks()

    def _claim(self) -> None:
        folder = str(self._parts.storage.root.resolve())
        with _claims_lock:
            if folder in _claimed:
                raise ConfigError(
                    f"Job {self.name!r}: job {_claimed[folder]!r} runs on {folder} "
                    "in this process already.",
                    remedy="stop that one first, or give this job its own checkpointLocation.",
                )
            _claimed[folder] = self.name

    def _new_run(self) -> QueryRun:
        with self._lock:
            self._run = QueryRun(self._parts, self._stopping, self._run)
            return self._run

    def _watch(self) -> None:
        policy = restart_policy(self._parts.description.options)
        restarts = 0
        try:
            error = self._await(self._wait)
            while error is not None and not self._stopping.is_set():
                if self._is_spark_lost():
                    self._error = SparkLostError(
                        f"Job {self.name!r}: its Spark application has ended: {error}.",
                        remedy="start the job again.",
                    )
                    break
                delay_s = policy(time.monotonic()) if _restartable(error) else None
                if delay_s is None:
                    self._error = error
                    break
                restarts += 1
                self._parts.observers(JobRestarting(self.name, str(error), restarts, delay_s))
                if self._stopping.wait(delay_s):
                    break
                error = self._await(self._restart)
            if isinstance(error, StopJobError):
                self._error = error  # found by the commit queue, while the job was being stopped
            self._release()
        finally:
            self._close()
            self._parts.observers(JobStopped(self.name, str(self._error) if self._error else ""))
            self._finished.set()

    def _release(self) -> None:
        if self._is_saved:
            return  # the savepoint is made of the checkpoints, and its restore is the way on
        policy, stopped = self._parts.description.options.externalized_retention, self._stopping
        if self._run and retention.is_due(policy, self._error, stopped=stopped.is_set()):
            self._run.release()

    def _is_spark_lost(self) -> bool:
        try:
            return bool(self._parts.spark.sparkContext._jsc.sc().isStopped())
        except Exception:  # noqa: BLE001 whatever the gateway says, no JVM answers
            return True

    def _wait(self) -> None:
        if self._run is not None:
            self._run.wait()

    def _restart(self) -> None:
        restore_worker_python(self._parts.spark.sparkContext)
        run = self._new_run()
        run.start()
        run.wait()

    @staticmethod
    def _await(run: Callable[[], None]) -> BaseException | None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 handed to the restart strategy
            return carried(error) or failure(error)
        return None

    def _close(self) -> None:
        for close in self._parts.closers():
            try:
                close()
            except Exception as error:  # noqa: BLE001 the job has ended: nothing is left to protect
                self._error = self._error or error
        with _claims_lock:
            _claimed.pop(str(self._parts.storage.root.resolve()), None)


def _restartable(error: BaseException) -> bool:
    """Errors of others (Spark, a driver, a network) may pass; ours say so themselves."""
    return error.restartable if isinstance(error, TwoPhaseError) else True
