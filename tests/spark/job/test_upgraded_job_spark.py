"""A job is upgraded in the middle, in its own folder or from a savepoint: what fits goes on
exactly, and what would read its state for another one is refused before any row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from harness.counts import Counts, counts
from tests.operations.savepoint.test_savepoint_spark import (
    Moved,
    plain,
    unique,
    windows,
)
from twophase.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime"), pytest.mark.proof]

ROCKSDB = {"state.backend": "rocksdb"}
Plan = Callable[[DataFrame], DataFrame]


@pytest.fixture
def moved(spark: SparkSession, tmp_path: Path) -> Moved:
    return Moved(spark, tmp_path)


@pytest.fixture(params=["own folder", "savepoint"])
def upgraded(request: pytest.FixtureRequest, moved: Moved) -> Callable[..., None]:
    """Stops the job of one plan after two micro-batches, and runs another one on the third."""

    def upgrade(old: Plan, new: Plan, sinks: tuple[str, ...] = ("facts",), **options: Any) -> None:
        moved.build = old
        moved.add()
        moved.add()
        saved = moved.root / "saved"
        moved.stopped(saved, **options)
        moved.build = new
        moved.add()
        folder = "job"
        if request.param == "savepoint":
            folder, options["restore.path"] = "again", str(saved)
        location = {"checkpointLocation": str(moved.root / folder)}
        moved.run(moved.writer(sinks=sinks, options={**location, **options}))

    return upgrade


def wider(frame: DataFrame) -> DataFrame:
    return frame.withColumn("double", F.col("id") * 2)


def test_a_new_column_and_a_new_sink_get_their_rows_from_there_on(
    moved: Moved, upgraded: Callable[..., None]
) -> None:
    upgraded(plain, wider, ("facts", "lake"))
    rows = sorted(moved.targets["facts"].rows(), key=lambda row: row["id"])
    later = [{"id": number, "double": number * 2} for number in range(20, 30)]
    assert rows == [*({"id": number} for number in range(20)), *later]
    assert sorted(moved.targets["lake"].rows(), key=lambda row: row["id"]) == later


class Text(Counts):
    """Keeps another type under the same name."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        text = (self._count.get() or ("",))[0] + "x" * sum(1 for _ in rows)
        self._count.update((text,))
        yield Row(id=key[0] * 1000 + len(text))


def texts(frame: DataFrame) -> DataFrame:
    keyed = frame.withColumn("key", F.col("id") % 3).groupBy("key")
    return keyed.transformWithState(Text(), "id long", "Append", "None")


def unique_twice(frame: DataFrame) -> DataFrame:
    return unique(unique(frame))


OTHER_STATE = {
    "another operator": (unique, windows),
    "one operator more": (unique, unique_twice),
    "one operator less": (unique_twice, unique),
    "another type of state": (counts, texts),
    "state where there was none": (plain, unique),
    "none where there was state": (unique, plain),
}


@pytest.mark.parametrize("case", OTHER_STATE)
def test_a_plan_whose_state_is_another_one_is_refused_before_any_row(
    moved: Moved, upgraded: Callable[..., None], case: str
) -> None:
    old, new = OTHER_STATE[case]
    before: list[list[int]] = []

    def noted(frame: DataFrame) -> DataFrame:
        before.append(moved.ids())
        return new(frame)

    with pytest.raises(Exception, match=r"(?i)state"):
        upgraded(old, noted, **ROCKSDB)
    assert before
    assert moved.ids() == before[0]


def unique_by(column: str) -> Plan:
    def plan(frame: DataFrame) -> DataFrame:
        both = frame.select((F.col("id") % 15).alias("a"), (F.col("id") % 7).alias("b"))
        return both.dropDuplicates([column]).select(F.col(column).alias("id"))

    return plan


def counts_of(keys: int) -> Plan:
    def plan(frame: DataFrame) -> DataFrame:
        keyed = frame.withColumn("key", F.col("id") % keys).groupBy("key")
        return keyed.transformWithState(Counts(), "id long", "Append", "None")

    return plan


OTHER_PLAN = {
    "another key": (
        unique_by("a"),
        unique_by("b"),
        r"kept state of a, .* would now keep state of b, ",
    ),
    "another key of the same name": (
        *(counts_of(3), counts_of(5)),
        r"kept state of key, key = \(id % CAST\(\? .* would now keep state of the same with other ",
    ),
}


@pytest.mark.parametrize("case", OTHER_PLAN)
def test_a_plan_that_keeps_state_of_something_else_is_refused(
    moved: Moved, upgraded: Callable[..., None], case: str
) -> None:
    """Of the same type, so that Spark would go on with it."""
    old, new, message = OTHER_PLAN[case]
    before: list[list[int]] = []

    def noted(frame: DataFrame) -> DataFrame:
        before.append(moved.ids())
        return new(frame)

    with pytest.raises(ConfigError, match=message):
        upgraded(old, noted, **ROCKSDB)
    assert before
    assert moved.ids() == before[0]


def test_it_goes_on_where_that_is_allowed(moved: Moved, upgraded: Callable[..., None]) -> None:
    """The key is the same one, written in another way."""

    def renamed(frame: DataFrame) -> DataFrame:
        keyed = frame.withColumn("remainder", F.col("id") % 3).groupBy("remainder")
        return keyed.transformWithState(Counts(), "id long", "Append", "None")

    with pytest.raises(ConfigError, match="would now keep state of remainder"):
        upgraded(counts, renamed, **ROCKSDB)
    location = {"checkpointLocation": str(moved.root / "job"), "state.allow_changed_plan": "true"}
    moved.run(moved.writer(options={**location, **ROCKSDB}))
    counted = [sum(1 for number in range(30) if number % 3 == key) for key in range(3)]
    assert {1000 * key + counted[key] for key in range(3)} <= {*moved.ids()}


def test_a_lineage_that_died_before_its_first_checkpoint_is_one_of_its_savepoint(
    moved: Moved,
) -> None:
    moved.build = counts_of(3)
    moved.add()
    saved = moved.root / "saved"
    moved.stopped(saved, **ROCKSDB)
    restore = {"restore.path": str(saved), **ROCKSDB}
    idle = moved.writing("again", **restore).start()
    moved.wait_until_read(idle, "again")
    idle.stop()
    assert not [*(moved.root / "again" / "chk").glob("*")]

    moved.build, before = counts_of(5), moved.ids()
    moved.add()
    for options in (restore, ROCKSDB):
        with pytest.raises(ConfigError, match=r"kept state of key, key = \(id % CAST\(\? "):
            moved.run(moved.writing("again", **options))
    assert moved.ids() == before
    moved.build = counts_of(3)
    moved.run(moved.writing("again", **ROCKSDB))
    assert {*moved.ids()} == {*before, 7, 1007, 2006}
