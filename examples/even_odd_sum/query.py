"""The query of both runs: two keyed sums, even and odd, in Spark's keyed state.

It reads by `twophase-kafka`, which needs PySpark 4.2 or newer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import twophase

PARITIES = ("even", "odd")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Sum(StatefulProcessor):
    """Adds up numbers. For each micro-batch it emits the increment and the new sum."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = handle.getValueState("sum", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        (before,) = self._sum.get() or (0,)
        added = sum(row.number for row in rows)
        self._sum.update((before + added,))
        yield Row(parity=key[0], added=added, total=before + added)

    def close(self) -> None:
        pass


def start_spark() -> SparkSession:
    """Start a small Spark session. transformWithState needs RocksDB."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        .getOrCreate()
    )
    twophase.register(spark)
    return spark


def sums(spark: SparkSession) -> DataFrame:
    """Return a stream with one row for each micro-batch and parity: parity, added, total."""
    numbers = (
        spark.readStream.format("twophase-kafka")
        .option("kafka.bootstrap.servers", os.environ["SUMS_KAFKA"])
        .option("subscribe", os.environ["SUMS_TOPIC"])
        .option("value.format", "json")
        .option("maxRecordsPerTrigger", os.environ["SUMS_RECORDS_PER_CHECKPOINT"])
        .schema("number long")
        .load()
    )
    parity = F.when(F.col("number") % 2 == 0, PARITIES[0]).otherwise(PARITIES[1])
    return (
        numbers.withColumn("parity", parity)
        .groupBy("parity")
        .transformWithState(Sum(), "parity string, added long, total long", "Append", "None")
    )
