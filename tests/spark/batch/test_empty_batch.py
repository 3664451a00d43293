"""A micro-batch without partitions is decided like any other (HD6), and costs no Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from harness.folder_sink import FolderSink, FolderTarget
from twophase.events import CheckpointDecided, Event
from twophase.spark.job.stream_writer import write_stream
from twophase.spark.plan import logical_plan

pytestmark = pytest.mark.spark


class LateStart(DataSource):
    """Like the Kafka source: the first micro-batch has no partitions, the second one has rows."""

    @classmethod
    def name(cls) -> str:
        return "late-start"

    def schema(self) -> str:
        return "id long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return LateReader()


class LateReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"next": -1}

    def latestOffset(self, start: Any, limit: Any) -> dict[str, Any]:
        return {"next": min(start["next"] + 1, 1)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(max(0, start["next"]), end["next"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": [7, 8]})


def test_it_is_decided_without_a_spark_job(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(LateStart)
    context = spark.sparkContext
    jobs: dict[int, int] = {}
    targets = {name: FolderTarget(tmp_path / name) for name in ("facts", "lake")}

    def count(event: Event) -> None:
        if isinstance(event, CheckpointDecided):
            jobs[event.checkpoint] = len(
                context.statusTracker().getJobIdsForGroup(
                    context.getLocalProperty("spark.jobGroup.id")
                )
            )

    writer = write_stream(spark.readStream.format("late-start").load(), name="late").observer(count)
    writer.sink("facts", FolderSink(tmp_path / "facts"))
    writer.sink("lake", FolderSink(tmp_path / "lake"), transform=lambda rows: rows.where("id > 7"))
    job = writer.option("checkpointLocation", str(tmp_path / "job")).start()
    try:
        while len(targets["lake"].rows()) < 1 and job.is_active:
            job.await_termination(0.1)
    finally:
        job.stop()
    assert job.exception() is None
    assert jobs[0] == 0
    assert jobs[1] > 0
    assert [row["id"] for row in targets["facts"].rows()] == [7, 8]
    assert [row["id"] for row in targets["lake"].rows()] == [8]
    [spark_folder] = (tmp_path / "job" / "spark").iterdir()
    for number in (0, 1):
        assert (spark_folder / "offsets" / str(number)).is_file()
    assert (spark_folder / "commits" / "0").is_file()


TRANSFORMS: dict[str, tuple[Callable[[DataFrame], DataFrame], bool]] = {
    "as it is": (lambda rows: rows, True),
    "filtered and projected": (
        lambda rows: rows.where("id > 7").selectExpr("id + 1 AS more"),
        True,
    ),
    "exploded": (lambda rows: rows.selectExpr("explode(array(id, id)) AS id"), True),
    "with itself": (lambda rows: rows.union(rows), True),
    "with other rows": (lambda rows: rows.union(rows.sparkSession.range(1)), False),
    "with rows of values": (lambda rows: rows.union(rows.sparkSession.sql("SELECT 1L")), False),
    "counted": (lambda rows: rows.groupBy().count(), False),
    "other rows": (lambda rows: rows.sparkSession.range(3), False),
    "repartitioned": (lambda rows: rows.repartition(2), False),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_a_sink_sees_of_it_is_known_to_be_empty(spark: SparkSession, name: str) -> None:
    transform, expected = TRANSFORMS[name]
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), "id long")
    assert nothing.rdd.getNumPartitions() == 0
    assert logical_plan.is_empty(transform(nothing)) is expected
    if expected:
        assert transform(nothing).count() == 0


def test_a_batch_with_partitions_is_not_known_to_be_empty(spark: SparkSession) -> None:
    assert not logical_plan.is_empty(
        spark.createDataFrame(spark.sparkContext.parallelize([], 1), "id long")
    )
