"""Four queries that keep state, each in another way: windows, a stream-stream join, deduplication,
transformWithState.

Two of them keep it in Spark's default state store, two in RocksDB; transformWithState
works in no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from integration.stateful.workload import (
    EVENT,
    JOIN_LATE_S,
    LATE_S,
    PAID_WITHIN_S,
    PAYMENT,
    UNIQUE_S,
    VISIT_TIMEOUT_S,
    WINDOW_S,
)

Read = Callable[[str, str], DataFrame]
"""Reads a topic, named `events` or `payments`, with a schema."""


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        build: the query, from its sources.
        columns: of its table.
        provider: the name of its state store's class.
        state: the options of Spark's state data source under which all its state is read.
    """

    build: Callable[[Read], DataFrame]
    columns: str
    provider: str
    state: tuple[dict[str, str], ...]


def _timed(frame: DataFrame, seconds: str, late_s: float) -> DataFrame:
    """With the event time in the column `time`, and a watermark on it."""
    return frame.withColumn("time", F.timestamp_seconds(seconds)).withWatermark(
        "time", f"{late_s * 1000:.0f} milliseconds"
    )


def _windows(read: Read) -> DataFrame:
    grouped = _timed(read("events", EVENT), "at", LATE_S).groupBy(
        F.window("time", f"{WINDOW_S} seconds"), "word"
    )
    return grouped.count().select(F.unix_seconds("window.start").alias("start"), "word", "count")


def _joined(read: Read) -> DataFrame:
    events = _timed(read("events", EVENT), "at", JOIN_LATE_S)
    payments = _timed(read("payments", PAYMENT), "paid_at", JOIN_LATE_S).withColumnRenamed(
        "time", "paid_time"
    )
    until = F.expr(f"time + interval {PAID_WITHIN_S} seconds")
    matches = (F.col("number") == F.col("paid_number")) & F.col("paid_time").between(
        F.col("time"), until
    )
    return events.join(payments, matches, "left_outer").select("number", "paid_at")


def _deduplicated(read: Read) -> DataFrame:
    return (
        _timed(read("events", EVENT), "sent", UNIQUE_S)
        .dropDuplicatesWithinWatermark(["id"])
        .select("id", "sent")
    )


def _visits(read: Read) -> DataFrame:
    return (
        _timed(read("events", EVENT), "at", LATE_S)
        .groupBy("visit")
        .transformWithState(
            Visits(), "visit string, events long, amount long", "Append", "EventTime"
        )
    )


class Visits(StatefulProcessor):
    """Adds up the events of a visit, and gives the sum out when nothing more
    has come for a while.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._visit = handle.getValueState("visit", "events long, amount long, last long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        events, amount, last = self._visit.get() or (0, 0, 0)
        for row in rows:
            events, amount, last = events + 1, amount + row.amount, max(last, row.at)
        self._visit.update((events, amount, last))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer((last + VISIT_TIMEOUT_S) * 1000)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        events, amount, _ = self._visit.get() or (0, 0, 0)
        self._visit.clear()
        yield Row(visit=key[0], events=events, amount=amount)

    def close(self) -> None:
        pass


_HASHMAP = "HDFSBackedStateStoreProvider"
_ROCKSDB = "RocksDBStateStoreProvider"
_WHOLE: dict[str, str] = {}
_SIDES = {"joinSide": "left"}, {"joinSide": "right"}
_VISITS = {"stateVarName": "visit"}, {"readRegisteredTimers": "true"}

QUERIES = {
    "windowed": Query(
        _windows, "start BIGINT, word VARCHAR(20), count BIGINT", _HASHMAP, (_WHOLE,)
    ),
    "joined": Query(_joined, "number BIGINT, paid_at BIGINT", _HASHMAP, _SIDES),
    "deduplicated": Query(_deduplicated, "id BIGINT, sent BIGINT", _ROCKSDB, (_WHOLE,)),
    "visits": Query(_visits, "visit VARCHAR(20), events BIGINT, amount BIGINT", _ROCKSDB, _VISITS),
}
