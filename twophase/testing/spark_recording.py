"""A Spark that lives once through what drivers do, while its JVM notes the classes. See `spark_start`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

_JVM_END_TIMEOUT_S = 120


class _Numbers(DataSource):
    """A streaming source in Python."""

    def schema(self) -> str:
        return "id long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 of Spark's contract
        return _Reader()


class _Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"next": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002
        return {"next": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield pa.RecordBatch.from_pydict({"id": [1, 2, 3]})


def main() -> None:
    """Batches, a stream with `foreachBatch`, a shuffle; then an end in order: the JVM writes its archive as it ends."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.dataSource.register(_Numbers)
    with tempfile.TemporaryDirectory() as folder:
        frame = spark.readStream.format("_Numbers").load().filter("id > 0")
        query = (
            frame.writeStream.foreachBatch(_handle)
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_END_TIMEOUT_S)


def _handle(batch: DataFrame, number: int) -> None:  # noqa: ARG001
    batch.persist()
    batch.mapInArrow(lambda batches: batches, "id long").collect()
    batch.groupBy("id").count().collect()
    batch.unpersist()


if __name__ == "__main__":
    main()
