"""Spark's progress reports on the query of a job: records, rate, lag."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from twophase.contract.source_entry_points import lag_of
from twophase.engine.progress import QueryProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_ADD_BATCH = "addBatch"
_POLL_S = 1.0
_JOIN_S = 5.0
_log = logging.getLogger("twophase")


class QueryReader:
    """Adds up Spark's progress reports, each micro-batch once.

    Asks the JVM for single values: a report as JSON costs it some milliseconds, and it keeps a
    hundred.
    """

    def __init__(self) -> None:
        self._newest_batch = -1
        self._progress = QueryProgress()

    def read(self, query: StreamingQuery) -> QueryProgress:
        """Return the progress, with the reports that are new since the last call."""
        kept = query._jsq.recentProgress()
        if not len(kept):
            return self._progress
        lag = lag_of((one.endOffset(), one.latestOffset()) for one in kept[-1].sources())
        known, records = self._newest_batch, self._progress.records
        for report in reversed(kept):
            batch = report.batchId()
            if batch <= known:
                break
            # a trigger without data is reported under the number of the next micro-batch
            if report.durationMs().containsKey(_ADD_BATCH):
                self._newest_batch = max(self._newest_batch, batch)
                records += max(0, report.numInputRows())
        rate = kept[-1].processedRowsPerSecond()
        self._progress = QueryProgress(records, rate if math.isfinite(rate) else 0.0, lag)
        return self._progress


class QueryPoller:
    """Polls Spark once a second in its own thread, and a last time at the end.

    Args:
        query: returns the job's query, another one after a restart.
        report: called with each progress that differs from the last.
    """

    def __init__(
        self, query: Callable[[], StreamingQuery | None], report: Callable[[QueryProgress], None]
    ) -> None:
        self._query = query
        self._report = report
        self._reader = QueryReader()
        self._reported = QueryProgress()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="twophase-query-progress", daemon=True
        )

    def start(self) -> None:
        """Begin to poll. Called once."""
        self._thread.start()

    def stop(self) -> None:
        """Poll a last time, unless Spark does not answer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._ended.wait(_POLL_S):
            self._ask()
        self._ask()

    def _ask(self) -> None:
        query = self._query()
        if query is None:
            return
        try:
            progress = self._reader.read(query)
        except Exception:  # noqa: BLE001 a report must not disturb the job
            _log.debug("The query's progress could not be read", exc_info=True)
            return
        if progress != self._reported:
            self._reported = progress
            self._report(progress)
