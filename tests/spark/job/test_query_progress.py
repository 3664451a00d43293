"""Spark's reports on the query of a job: each micro-batch is counted once, and lag is what
sources say.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.contract.source_entry_points import lag_of
from twophase.engine.progress import QueryProgress
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.spark.job.query_progress import QueryPoller, QueryReader


class Query:
    """As much of a Spark query as progress needs."""

    def __init__(self, *reports: Report) -> None:
        self._reports = reports
        self._jsq = self

    def recentProgress(self) -> list[Report]:
        return [*self._reports]


class Report:
    """A report in the JVM."""

    asked = 0

    def __init__(self, batch: int, rows: int, phase: str) -> None:
        self._batch = batch
        self._rows = rows
        self._phase = phase

    def batchId(self) -> int:
        Report.asked += 1
        return self._batch

    def numInputRows(self) -> int:
        return self._rows

    def durationMs(self) -> Report:
        return self

    def containsKey(self, phase: str) -> bool:
        return phase == self._phase

    def processedRowsPerSecond(self) -> float:
        return 5.0 if self._rows else math.inf

    def sources(self) -> list[object]:
        return []


def report(batch: int, rows: int) -> Report:
    return Report(batch, rows, "addBatch")


def idle(batch: int) -> Report:
    """Spark's report of a trigger without data has the number of the micro-batch that is next."""
    return Report(batch, 0, "latestOffset")


def read(reader: QueryReader, *reports: Report) -> QueryProgress:
    query: Any = Query(*reports)
    return reader.read(query)


def test_each_micro_batch_is_counted_once() -> None:
    reader = QueryReader()
    assert read(reader) == QueryProgress()
    assert read(reader, report(0, 10)).records == 10
    assert read(reader, report(0, 10)).records == 10
    assert read(reader, report(0, 10), report(1, 5)).records == 15
    assert read(reader, report(2, 1), report(3, 2), report(4, 3)).records == 21
    assert read(reader, report(4, 3)) == QueryProgress(21, 5.0, None)


def test_the_jvm_is_not_asked_for_reports_that_were_read_before() -> None:
    reader, reports = QueryReader(), [report(batch, 1) for batch in range(100)]
    read(reader, *reports[:95])
    Report.asked = 0
    assert read(reader, *reports).records == 100
    assert Report.asked == 6


def test_a_trigger_that_took_no_time_has_no_rate() -> None:
    assert read(QueryReader(), idle(0)) == QueryProgress(0, 0.0, None)


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 5)), st.booleans()), max_size=12))
def test_micro_batches_are_counted_whatever_idle_triggers_and_polls_come_between(
    triggers: list[tuple[int | None, bool]],
) -> None:
    """Each trigger has rows or none, and is followed by a poll or not."""
    reader, reports, number, total = QueryReader(), [], 0, 0
    for rows, polls in triggers:
        if rows is None:
            reports.append(idle(number))
        else:
            reports.append(report(number, rows))
            number, total = number + 1, total + rows
        if polls:
            assert read(reader, *reports).records == total
    assert read(reader, *reports).records == total


def ours(*offsets: int) -> str:
    entries = [PartitionOffset("t", "id", index, at) for index, at in enumerate(offsets)]
    return SourceOffset.of("orders", entries).to_line()


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        (ours(5, 7), ours(6, 10), 4),
        (ours(5), ours(4, 2), 2),
        (SourceOffset.initial("orders").to_line(), ours(4), None),
        ('{"t": {"0": 5}, "u": {"0": 1}}', '{"t": {"0": 9}, "u": {"0": 1}}', 4),
        ('{"logOffset": 3}', '{"logOffset": 5}', None),
        (ours(5), None, None),
        ("3", "x", None),
        (None, None, None),
    ],
)
def test_lag_is_what_waits_and_unknown_if_the_source_cannot_tell(
    end: str | None, latest: str | None, lag: int | None
) -> None:
    assert lag_of([(end, latest), (None, None)]) == lag
    assert lag_of([(end, latest), (ours(1), ours(8))]) == 7 + (lag or 0)


class WithoutSources(Report):
    def sources(self) -> list[object]:
        raise ValueError("no")


def test_a_lag_that_cannot_be_read_once_loses_no_records() -> None:
    reader = QueryReader()
    with pytest.raises(ValueError, match="no"):
        read(reader, WithoutSources(0, 10, "addBatch"))
    assert read(reader, report(0, 10)).records == 10


def test_a_query_that_cannot_be_asked_does_not_disturb() -> None:
    heard: list[QueryProgress] = []
    broken: Any = object()
    queries = iter([broken])
    poll(QueryPoller(lambda: next(queries, None), heard.append))
    good: Any = Query(report(0, 10))
    poll(QueryPoller(lambda: good, heard.append))
    assert [progress.records for progress in heard] == [10]


def poll(poller: QueryPoller) -> None:
    poller.start()
    poller.stop()
