"""Keyed state under Flink's names on real Spark: exact over a savepoint, and with a TTL."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from harness.selection import first_of
from harness.spark_features import needs
from harness.spark_settings import changed
from tests.functions.test_keyed_state import Mean
from tests.operations.savepoint.test_rescale_spark import noted, rescaled
from tests.operations.savepoint.test_savepoint_spark import Moved
from twophase.errors import RejectedRowsError
from twophase.functions.keyed_state import (
    aggregating_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)
from twophase.spark_versions import REPARTITIONED_STATE

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

ROCKSDB = {"state.backend": "rocksdb"}
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_PARTITIONS = "spark.sql.shuffle.partitions"
_RESULT = "id long, last long, seen array<long>, digits array<long>, largest long, mean double"


def larger(one: int, other: int) -> int:
    return max(one, other)


class Everything(StatefulProcessor):
    """Keeps each kind of state of the records of a key, and gives all of them out."""

    ttl: timedelta | str | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        ttl = self.ttl
        self._last = value_state(handle, "last", "long", ttl=ttl)
        self._seen = list_state(handle, "seen", "long", ttl=ttl)
        self._digits = map_state(handle, "digits", "string", "count long", ttl=ttl)
        self._largest = reducing_state(handle, "largest", "long", larger, ttl=ttl)
        self._mean = aggregating_state(handle, "mean", "count long, total long", Mean(), ttl=ttl)

    def add(self, number: int) -> None:
        self._last.update(number)
        self._seen.add(number)
        digit = str(number % 10)
        (count,) = self._digits.get(digit) or (0,)
        self._digits.put(digit, (count + 1,))
        self._largest.add(number)
        self._mean.add(number)

    def result(self) -> dict[str, Any]:
        return {
            "last": self._last.value(),
            "seen": sorted(self._seen.get()),
            "digits": sorted(count for (count,) in self._digits.values()),
            "largest": self._largest.get(),
            "mean": self._mean.get(),
        }

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for number in sorted(row.id for row in rows):
            self.add(number)
        yield Row(id=key[0], **self.result())

    def close(self) -> None:
        pass


class InPandas(Everything):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        import pandas as pd  # type: ignore[import-untyped]

        for number in sorted(int(number) for frame in rows for number in frame["id"]):
            self.add(number)
        yield pd.DataFrame([{"id": key[0], **self.result()}])


def keyed(frame: DataFrame) -> Any:
    return frame.withColumn("key", F.col("id") % 2).groupBy("key")


def rows_form(frame: DataFrame) -> Any:
    return keyed(frame).transformWithState(Everything(), _RESULT, "Append", "None")


def pandas_form(frame: DataFrame) -> Any:
    return keyed(frame).transformWithStateInPandas(InPandas(), _RESULT, "Append", "None")


@pytest.fixture
def moved(spark: SparkSession, tmp_path: Path) -> Iterator[Moved]:
    yield Moved(spark, tmp_path)
    spark.conf.unset(_NO_DATA)


def expected(last: int, key: int, keys: int = 2) -> dict[str, Any]:
    """What one of the keys has after the records below `last`."""
    seen = [number for number in range(last) if number % keys == key]
    return {
        "id": key,
        "last": seen[-1],
        "seen": seen,
        "digits": [last // 10] * (10 // keys),
        "largest": seen[-1],
        "mean": sum(seen) / len(seen),
    }


@pytest.mark.parametrize("form", first_of(1, [rows_form, pandas_form]))
def test_every_kind_of_state_goes_on_exactly_from_a_savepoint(moved: Moved, form: Any) -> None:
    moved.build = form
    moved.add()
    moved.add()
    saved = moved.root / "saved"
    moved.stopped(saved, **ROCKSDB)
    moved.add()
    moved.run(moved.writing("again", **ROCKSDB, **{"restore.path": str(saved)}))
    found = sorted(moved.targets["facts"].rows(), key=lambda row: (row["id"], row["last"]))
    assert found == [expected(last, key) for key in (0, 1) for last in (10, 20, 30)]


class Expiring(StatefulProcessor):
    """Counts records, in states that live for a millisecond, and in one that lives for a day."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._short = reducing_state(handle, "short", "long", operator.add, ttl="1 ms")
        self._entries = list_state(handle, "entries", "long", ttl=0.001)
        self._long = reducing_state(handle, "long", "long", operator.add, ttl=timedelta(days=1))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._entries.add(row.id)
            for state in (self._short, self._long):
                state.add(1)
        yield Row(id=self._long.get(), short=self._short.get(), entries=len([*self._entries.get()]))

    def close(self) -> None:
        pass


@pytest.mark.proof
def test_state_is_gone_when_its_time_is_over_and_other_state_is_not(moved: Moved) -> None:
    moved.spark.conf.set(_NO_DATA, "false")
    moved.build = lambda frame: keyed(frame).transformWithState(
        Expiring(), "id long, short long, entries long", "Append", "ProcessingTime"
    )
    moved.add()
    moved.add()
    saved = moved.root / "saved"
    moved.stopped(saved, **ROCKSDB)
    moved.add()
    moved.run(moved.writing("again", **ROCKSDB, **{"restore.path": str(saved)}))
    found = sorted((row["id"], row["short"], row["entries"]) for row in _rows(moved))
    assert found == [(count, 5, 5) for count in (5, 10, 15) for _ in (0, 1)]


class Lasting(Everything):
    """Each kind of state with a TTL of a day, and each with one of a millisecond."""

    ttl = timedelta(days=1)

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._value = value_state(handle, "short value", "long", ttl="1 ms")
        self._list = list_state(handle, "short list", "long", ttl="1 ms")
        self._map = map_state(handle, "short map", "string", "long", ttl="1 ms")
        self._sum = reducing_state(handle, "short sum", "long", operator.add, ttl="1 ms")
        self._short_mean = aggregating_state(
            handle, "short mean", "count long, total long", Mean(), ttl="1 ms"
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        left = [self._value.value(), self._sum.get(), self._short_mean.get()]
        expired = left == [None] * 3 and not [*self._list.get()] and not [*self._map.keys()]
        for number in sorted(row.id for row in rows):
            self.add(number)
            for state in (self._list, self._sum, self._short_mean):
                state.add(number)
            self._value.update(number)
            self._map.put(str(number), number)
        yield Row(id=key[0], **self.result(), expired=expired)


KEYS = 5
"""More than partitions, so that each rescale moves some."""


@pytest.mark.proof
@needs(REPARTITIONED_STATE)
def test_every_kind_of_state_with_a_ttl_goes_on_exactly_through_rescales(moved: Moved) -> None:
    moved.spark.conf.set(_NO_DATA, "false")
    moved.build = lambda frame: (
        frame.withColumn("key", F.col("id") % KEYS)
        .groupBy("key")
        .transformWithState(Lasting(), f"{_RESULT}, expired boolean", "Append", "ProcessingTime")
    )
    moved.add()
    moved.stopped(moved.root / "of-2", "with-2", **ROCKSDB)
    moved.add()
    restored = {"restore.path": str(rescaled(moved, moved.root / "of-2", 3)), **ROCKSDB}
    moved.stopped(moved.root / "of-3", "with-3", **restored)
    moved.add()
    restored["restore.path"] = str(rescaled(moved, moved.root / "of-3", 1))
    moved.run(moved.writing("with-1", **restored))
    assert [noted(moved.root / f"with-{number}")[1] for number in (2, 3, 1)] == ["2", "3", "1"]
    found = sorted(_rows(moved), key=lambda row: (row["id"], row["last"]))
    assert found == [
        {**expected(last, key, KEYS), "expired": True}
        for key in range(KEYS)
        for last in (10, 20, 30)
    ]


def _rows(moved: Moved) -> list[dict[str, Any]]:
    return [*moved.targets["facts"].rows()]


class Twice(Everything):
    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        list_state(handle, "largest", "long")


def test_two_states_of_one_name_end_the_job_before_any_row(moved: Moved) -> None:
    """Spark 4.2 says only that its worker has ended: it drops the error of `init`."""
    moved.build = lambda frame: keyed(frame).transformWithState(Twice(), _RESULT, "Append", "None")
    moved.add()
    with pytest.raises(Exception, match="TransformWithStateInPySpark driver worker"):
        moved.run(moved.writing("job", **ROCKSDB))
    assert moved.ids() == []


class Halves(StatefulProcessor):
    """Adds up what one half of each number is."""

    def half(self, number: int) -> float:
        return number / 2

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = reducing_state(handle, "sum", "double", operator.add)
        self._last = map_state(handle, "last", "string", "id long, half double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._sum.add(self.half(row.id))
            self._last.put_all({"row": (row.id, row.id / 2)})
        yield Row(id=int(2 * (self._sum.get() or 0)))

    def close(self) -> None:
        pass


class Whole(Halves):
    """Some halves are no double."""

    def half(self, number: int) -> float:
        return number // 2 if number % 2 == 0 else number / 2


def test_a_value_that_spark_would_forget_stops_the_job_and_is_kept_when_it_is_mended(
    moved: Moved,
) -> None:
    def sums(processor: StatefulProcessor) -> None:
        moved.build = lambda frame: keyed(frame).transformWithState(
            processor, "id long", "Append", "None"
        )

    sums(Whole())
    moved.add()
    with pytest.raises(RejectedRowsError, match="The state 'sum' cannot have this value"):
        moved.run(moved.writing("job", **ROCKSDB))
    assert moved.ids() == []
    sums(Halves())
    moved.run(moved.writing("job", **ROCKSDB))
    assert moved.ids() == [20, 25]


def test_the_program_on_the_page_does_what_it_says(moved: Moved) -> None:
    page = Path(__file__).parents[2] / "docs" / "howto" / "keyed-state.md"
    program: dict[str, Any] = {"__name__": "page"}
    exec(page.read_text().split("```python\n")[1].split("```")[0], program)
    source, target, folder = (str(moved.root / name) for name in ("input", "out", "job"))
    orders = [("ann", "tea", 3), ("ann", "tea", 4), ("bob", "ink", 5), ("ann", "ink", 1)]
    names = ("customer", "product", "amount")
    text = "".join(json.dumps(dict(zip(names, order, strict=True))) + "\n" for order in orders)
    (moved.input / "orders.json").write_text(text)
    with changed(moved.spark, {_NO_DATA: "false", _PARTITIONS: "3"}):
        moved.run(program["writer"](moved.spark, source, target, folder))
    assert noted(Path(folder))[1] == "2"
    lines = [line for path in Path(target).rglob("*.json") for line in path.open()]
    found = sorted(tuple(json.loads(line).values()) for line in lines)
    assert found == [("ann", 8, 2), ("bob", 5, 1)]
