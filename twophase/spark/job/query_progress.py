"""Spark's progress reports on the query of a job: records, rate, lag."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twophase.engine.progress import QueryProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_ADD_BATCH = "addBatch"
_POLL_S = 1.0
_JOIN_S = 5.0
_log = logging.getLogger("twophase")


class QueryReader:
    """Adds up Spark's progress reports, each micro-batch once."""

    def __init__(self) -> None:
        self._newest_batch = -1
        self._progress = QueryProgress()

    def read(self, query: StreamingQuery) -> QueryProgress:
        """Return the progress, with the reports that are new since the last call."""
        last = query.lastProgress
        if last is None:
            return self._progress
        # Spark keeps a hundred reports: all of them are asked for only if one may have been missed
        reports = [last] if last["batchId"] <= self._newest_batch + 1 else query.recentProgress
        records = self._progress.records
        for report in reports:
            # a trigger without data is reported under the number of the next micro-batch
            if report["batchId"] > self._newest_batch and _ADD_BATCH in report["durationMs"]:
                self._newest_batch = report["batchId"]
                records += max(0, report["numInputRows"])
        self._progress = QueryProgress(
            records, last["processedRowsPerSecond"], lag_of(last["sources"])
        )
        return self._progress


def lag_of(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many records wait in the sources; None if no source reports its offsets."""
    lags = [_lag(source) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _lag(source: Mapping[str, Any]) -> int | None:
    end, latest = _positions(source.get("endOffset")), _positions(source.get("latestOffset"))
    if not end or not latest:
        return None
    return sum(max(0, offset - end.get(key, 0)) for key, offset in latest.items())


def _positions(offset: Any) -> dict[tuple[str, int], int]:
    """Return the next offset of each partition, of `twophase-kafka` or Spark's Kafka source."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
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
