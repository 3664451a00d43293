"""Plans that shuffle, while Spark would not notice that a shuffle computed again
has given other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from harness.folder_sink import FolderSink, FolderTarget
from harness.spark_settings import changed
from twophase.errors import PreflightError
from twophase.spark.job.stream_writer import StreamWriter, write_stream
from twophase.spark.plan import logical_plan, shuffles

pytestmark = pytest.mark.spark

# without it Spark drops the hint to rebalance, and does not shuffle
ADAPTIVE = "spark.sql.adaptive.enabled"

Change = Callable[[DataFrame], DataFrame]

SHUFFLING: dict[str, Change] = {
    "round robin": lambda rows: rows.repartition(2),
    "by chance": lambda rows: rows.repartition(2, F.rand()),
    "by a column": lambda rows: rows.repartition(2, "id"),
    "by range": lambda rows: rows.repartitionByRange(2, "id"),
    "rebalanced": lambda rows: rows.hint("rebalance"),
    "before a filter": lambda rows: rows.repartition(2).where("id > 0"),
    "in a union": lambda rows: rows.union(rows.repartition(2)),
    "aggregated": lambda rows: rows.groupBy("id").count().select("id"),
    "deduplicated": lambda rows: rows.dropDuplicates(["id"]),
}
STRAIGHT: dict[str, Change] = {
    "as read": lambda rows: rows,
    "coalesced": lambda rows: rows.coalesce(1),
    "filtered and computed": lambda rows: rows.where("id > 0").withColumn("id", F.col("id") + 1),
    "drawn": lambda rows: rows.withColumn("id", F.rand().cast("long")),
    "by a function": lambda rows: rows.mapInArrow(lambda batches: batches, "id long"),
    "a union": lambda rows: rows.union(rows),
}


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> Iterator[DataFrame]:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.json").write_text('{"id": 1}\n{"id": 2}\n')
    with changed(spark, {ADAPTIVE: "true"}):
        yield spark.readStream.schema("id long").json(str(tmp_path / "input"))


@pytest.fixture
def unnoticed(spark: SparkSession) -> Iterator[None]:
    """Spark does not act on what a shuffle's checksums tell."""
    with changed(spark, {shuffles.FULL_RETRY: "false"}):
        yield


def job(rows: DataFrame, root: Path, transform: Change | None = None) -> StreamWriter:
    writer = write_stream(rows, name="orders").sink("facts", FolderSink(root / "facts"), transform)
    writer.options(**{"checkpointLocation": str(root / "job"), "restart.strategy": "none"})
    return writer.trigger(availableNow=True)


def ids(root: Path) -> list[int]:
    return sorted(row["id"] for row in FolderTarget(root / "facts").rows())


@pytest.mark.parametrize("name", SHUFFLING)
def test_a_plan_that_shuffles_is_known(rows: DataFrame, name: str) -> None:
    assert logical_plan.may_shuffle(SHUFFLING[name](rows))


@pytest.mark.parametrize("name", STRAIGHT)
def test_a_plan_that_does_not_shuffle_is_known(rows: DataFrame, name: str) -> None:
    assert not logical_plan.may_shuffle(STRAIGHT[name](rows))


def test_a_fault_is_named_with_what_is_right(spark: SparkSession) -> None:
    assert shuffles.find_fault(spark) is None
    off = settings({shuffles.FULL_RETRY: "false"}, {})
    pushed = settings({shuffles.FULL_RETRY: "true"}, {shuffles.PUSH: "true"})
    assert shuffles.find_fault(off) == shuffles.Fault(shuffles.FULL_RETRY, "true")
    assert shuffles.find_fault(pushed) == shuffles.Fault(shuffles.PUSH, "false")


def settings(session: dict[str, str], application: dict[str, str]) -> Any:
    """As much of a Spark session as has settings; those of an application cannot be
    changed under the tests.
    """
    return SimpleNamespace(conf=session, sparkContext=SimpleNamespace(getConf=lambda: application))


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_setting_is_what_spark_goes_by(spark: SparkSession, value: str) -> None:
    jvm: Any = spark._jvm  # Spark goes by the active session of this thread, as it does in a query
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
    with changed(spark, {shuffles.FULL_RETRY: value}):
        execution: Any = spark.range(4).repartition(2, F.rand())._jdf.queryExecution()
        assert acts_on_checksums(execution.toRdd()) is (value == "true")


def acts_on_checksums(rdd: Any) -> bool:
    """Whether the shuffle below has Spark compute everything again that rests on rows
    which have changed.
    """
    dependency = rdd.dependencies().apply(0)
    if dependency.getClass().getSimpleName() == "ShuffleDependency":
        return bool(dependency.checksumMismatchFullRetryEnabled())
    return acts_on_checksums(dependency.rdd())


@pytest.mark.usefixtures("unnoticed")
def test_a_plan_that_shuffles_is_refused_if_nobody_would_notice(
    rows: DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(PreflightError, match=shuffles.FULL_RETRY):
        job(SHUFFLING["by chance"](rows), tmp_path).start()
    assert not (tmp_path / "job" / "log").exists()


@pytest.mark.usefixtures("unnoticed")
def test_a_transform_that_shuffles_is_refused_if_nobody_would_notice(
    rows: DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(PreflightError, match=shuffles.FULL_RETRY):
        job(rows, tmp_path, SHUFFLING["round robin"]).start()


@pytest.mark.usefixtures("unnoticed")
def test_a_plan_that_does_not_shuffle_runs_whatever_the_setting(
    rows: DataFrame, tmp_path: Path
) -> None:
    job(rows, tmp_path, STRAIGHT["coalesced"]).start().await_termination(120)
    assert ids(tmp_path) == [1, 2]


def test_a_query_runs_with_the_detection_on_whatever_spark_s_default(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    before = spark.conf.get(shuffles.FULL_RETRY, None)
    running = job(SHUFFLING["by chance"](rows), tmp_path).trigger(processingTime="1 hour").start()
    try:
        [query] = spark.streams.active
        java: Any = query._jsq
        assert java.streamingQuery().sparkSessionForStream().conf().get(shuffles.FULL_RETRY) == (
            "true"
        )
        assert spark.conf.get(shuffles.FULL_RETRY, None) == before
    finally:
        running.stop()


def test_a_plan_that_shuffles_runs_with_the_settings_as_they_are(
    rows: DataFrame, tmp_path: Path
) -> None:
    job(SHUFFLING["by chance"](rows), tmp_path).start().await_termination(120)
    assert ids(tmp_path) == [1, 2]
