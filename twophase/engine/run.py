"""One run of a job's query, from the recovery of the job to the end of the query.

3. to 5.      recover, lineage, folder (engine/driver.py)
6. run        the host replays the newest micro-batch where needed, and begins new ones
"""

from __future__ import annotations

import threading
from typing import Any

from twophase.coordinator.commit.context import JobContext
from twophase.engine.driver import Driver
from twophase.engine.host import Query, QueryHost

_POLL_S = 0.02


class Run(Driver):
    """The driver of one run of the query. `stop` is safe to call from any thread.

    Args:
        host: runs the micro-batches.
        context: the job, as the driver of this run sees it.
        stopping: set when the job is to stop.
        previous: the run before this one, if it is a restart.
    """

    def __init__(
        self,
        host: QueryHost[Any],
        context: JobContext,
        stopping: threading.Event,
        previous: Run | None = None,
    ) -> None:
        super().__init__(host, context, previous.generation if previous else None, self.stop)
        self._query_host = host
        self._stopping = stopping
        self._query: Query | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Steps 3 to 6. A job that is stopping starts no query.

        Raises:
            ConfigError: the job cannot go on with these options or settings; nothing was written.
            StopJobError: the job must not go on.
        """
        if self._stopping.is_set():
            self.context.stopping.set()
        if self.take_over():
            with self._lock:
                if not self._stopping.is_set():
                    self._query = self._query_host.start(
                        self.coordinator, self.folder, self.plan, self.handle
                    )

    def wait(self) -> None:
        """Wait for the end of the query and of its queued commits; raise what made either fail."""
        if self._query is None:
            return
        try:
            self._query.wait()
        except Exception as error:
            self.coordinator.close()
            if self.coordinator.failure is not None:
                raise self.coordinator.failure from error
            raise
        self.coordinator.close(retry=True)
        if self.coordinator.failure is not None:
            raise self.coordinator.failure

    def stop(self) -> None:
        """Let no further micro-batch begin. A failed thread of the commit queue calls it too."""
        self.context.stopping.set()
        with self._lock:
            query = self._query
        if query is not None:
            query.stop()

    def stop_after_batch(self) -> None:
        """Let the micro-batch under way be decided, if it is triggered, and no further one begin.

        A decided checkpoint is committed first, or tried once more if a sink does not answer. The
        host has noted the micro-batch as finished by then, unless its query has failed.

        Raises:
            OSError: whether it is noted cannot be read; the job stops all the same.
        """
        with self._lock:  # held while the query is being started, which may have begun one
            query = self._query
        try:
            if query is not None:
                self._finish_batch()
        finally:
            self.stop()

    def _finish_batch(self) -> None:
        self.gate.close()
        self.gate.wait_until(self._may_stop)
        self.context.stopping.set()
        self.gate.wait_until_free()
        newest, never = self.coordinator.newest(), threading.Event()
        while newest and self.still_runs() and self.folder.finished() < newest.checkpoint:
            self._query_host.clock.wait(never, _POLL_S)

    def still_runs(self) -> bool:
        """Return whether the host may still note a micro-batch as finished."""
        return self._query is not None and self._query.is_active

    def _may_stop(self, number: int) -> bool:
        """Return whether a micro-batch is decided, or has not come to its trigger.

        It then waits for a pause, or for a sink that does not answer, perhaps for hours.
        """
        newest = self.coordinator.newest()
        is_decided = newest is not None and newest.checkpoint >= number
        return is_decided or self.coordinator.stop_if_waiting()
