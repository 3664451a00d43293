"""Runs Spark jobs concurrently; cancels them together, and waits until their tasks ended.

A plain thread loses Spark's local properties, such as the scheduler pool, and stopping the query
would not cancel its jobs (hazard H58). An `InheritableThread` keeps them, and uses whichever
session was created first, unless it is given one. Cancelling returns at once while tasks go on for
seconds (hazard H59); even after this module's wait a Python worker may outlive its task, which is
why declined attempts are also fenced in the sinks.
"""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark import InheritableThread, SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from twophase.errors import CheckpointExpiredError, carried

T = TypeVar("T")

_TASKS_END_TIMEOUT_S = 60.0
_POLL_S = 0.05


class SparkJobs:
    """One group of Spark jobs that succeed or are cancelled together.

    Args:
        context: the Spark context.
        what: what the jobs are for, for errors.
        timeout_s: for all of them together, from now on.
    """

    def __init__(self, context: SparkContext, what: str, timeout_s: float) -> None:
        self._context = context
        self._what = what
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._tag = f"twophase-{uuid.uuid4().hex}"

    def run(self, jobs: Mapping[str, Callable[[], T]], done: Callable[[str, T], None]) -> None:
        """Run every job in its own thread, and call `done` with its name and result as each ends.

        When the first one fails or the time is up, all others are cancelled. This returns or raises
        only when every thread has ended and no task of the jobs is known to run.

        Args:
            jobs: by name.
            done: runs in the calling thread; what it raises counts as a failure.

        Raises:
            CheckpointExpiredError: the time was up.
            Exception: the first failure; our error that Spark carried out of a task, or out of a
                data source that it planned, in place of Spark's own.
        """
        results: queue.SimpleQueue[tuple[str, T | None, BaseException | None]] = queue.SimpleQueue()
        threads = [self._start(name, job, results) for name, job in jobs.items()]
        try:
            for _ in threads:
                self._next(results, done)
        except BaseException:
            self._context.cancelJobsWithTag(self._tag)
            for thread in threads:
                thread.join(_TASKS_END_TIMEOUT_S)
            self._wait_until_tasks_ended()
            raise
        for thread in threads:
            thread.join()

    def _next(self, results: queue.SimpleQueue[Any], done: Callable[[str, T], None]) -> None:
        left_s = max(0.0, self._deadline_s - time.monotonic())
        try:
            name, result, error = results.get(timeout=left_s)
        except queue.Empty:
            raise CheckpointExpiredError(
                f"{self._what} did not complete within checkpoint.timeout ({self._timeout_s:g} s).",
                remedy="raise checkpoint.timeout, or read fewer records per trigger.",
            ) from None
        if error is not None:
            # an analysis fails on the driver, in no task: its seal has no tag, its text no row
            tag = None if isinstance(error, AnalysisException) else self._tag
            raise carried(error, tag) or error
        done(name, result)

    def _start(
        self, name: str, job: Callable[[], T], results: queue.SimpleQueue[Any]
    ) -> InheritableThread:
        def target() -> None:
            self._context.addJobTag(self._tag)
            try:
                results.put((name, job(), None))
            except BaseException as error:  # noqa: BLE001 the calling thread raises it
                results.put((name, None, error))

        thread = InheritableThread(target=target, name=f"twophase-{name}", daemon=True)
        thread.start()
        return thread

    def _wait_until_tasks_ended(self) -> None:
        deadline_s = time.monotonic() + _TASKS_END_TIMEOUT_S
        while self._active_tasks() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)

    def _active_tasks(self) -> int:
        """Return how many tasks Spark's status store counts as running in our jobs' stages."""
        tracker = self._context._jsc.sc().statusTracker()
        active = 0
        for job in tracker.getJobIdsForTag(self._tag):
            info = tracker.getJobInfo(job)
            stages = info.get().stageIds() if info.isDefined() else []
            for stage in stages:
                found = tracker.getStageInfo(stage)
                active += found.get().numActiveTasks() if found.isDefined() else 0
        return active


def is_lost(session: SparkSession) -> bool:
    """Return whether the Spark application of a session has ended, or its JVM has died."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 whatever the gateway says, no JVM answers
        return True


def thread_like_this(
    session: SparkSession, name: str, run: Callable[[], None]
) -> InheritableThread:
    """Return an unstarted thread with the local properties and active session of this one.

    Args:
        session: used if the calling thread has no active session.
        name: the thread's name.
        run: what the thread runs.
    """
    active = SparkSession.getActiveSession() or session

    def target() -> None:
        SparkSession._get_j_spark_session_class(active._jvm).setActiveSession(active._jsparkSession)
        run()

    return InheritableThread(target=target, name=name, daemon=True)
