"""Spark's progress reports on the query of a job: records, rate, lag."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

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
        positions = [(one.endOffset(), one.latestOffset()) for one in kept[-1].sources()]
        self._progress = QueryProgress(
            records, rate if math.isfinite(rate) else 0.0, lag_of(positions)
        )
        return self._progress


def lag_of(sources: Iterable[tuple[str | None, str | None]]) -> int | None:
    """Return how many records wait in the sources; None if no source reports its offsets.

    Args:
        sources: where the micro-batch ended and what the newest offset was, as JSON.
    """
    lags = [_lag(_positions(end), _positions(latest)) for end, latest in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _lag(end: Mapping[tuple[str, int], int], latest: Mapping[tuple[str, int], int]) -> int | None:
    if not end or not latest:
        return None
    return sum(max(0, offset - end.get(key, 0)) for key, offset in latest.items())


def _positions(line: str | None) -> dict[tuple[str, int], int]:
    """Return the next offset of each partition, of `twophase-kafka` or Spark's Kafka source."""
    try:
        offset = json.loads(line or "null")
    except ValueError:
        return {}
    match offset:
        case {"partitions": [*entries]}:
            return {(entry["topic"], entry["partition"]): entry["offset"] for entry in entries}
        case dict() if all(isinstance(partitions, dict) for partitions in offset.values()):
            return {
                (topic, int(index)): position
                for topic, partitions in offset.items()
                for index, position in partitions.items()
                if index.isdecimal() and isinstance(position, int)
            }
        case _:
            return {}


class QueryPoller:
    """Polls Spark once a second in its own thread, and a last time at the end.

    Args:
        query: returns the job's query, another one after a restart.
        report: called with each progress that is another one than the last.
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
