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

from tests.runtime.test_savepoint_spark import Counts, Moved, counts, plain, unique, windows

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
