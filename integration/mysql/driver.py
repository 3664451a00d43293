"""The driver process of the kill tests: a job from Kafka to one or two MySQL tables, as a
user would write it.

    python -m integration.mysql.driver '{"servers": ..., "topic": ..., "location": ..., "sinks":
        {"facts": {...}}}'

With `control` the protocol is switched off, here in the harness only: `duplicates` writes a batch
row by row and visibly before anything is noted; `losses` notes a batch as done before it is
written. The checker must see what they do.

With `deduplicated` the query keeps state, which changes no row.

With `scattered` the rows are spread over two tasks by chance, each time that a row is computed; the
point SHUFFLED is in those tasks, before their first row. With `unchecked` the product does not look
whether Spark would notice that.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import twophase
from benchmarks.jars import peer_jars
from harness import workload
from harness.without_protocol import insert, write_in_halves
from twophase.errors import TwoPhaseError
from twophase.internals.failpoints import be_the_driver, failpoint
from twophase.sinks.mysql.sink import MySqlSink
from twophase.spark.plan import shuffles
from twophase.spark_versions import LIMITED_READS
from twophase.testing.parent_death import die_with_parent

SHUFFLED = "SHUFFLED"


def main(settings: dict[str, Any]) -> int:
    """Run until the input is used up, or for ever."""
    be_the_driver()
    die_with_parent()
    spark = session(settings.get("master", "local[2]"))
    spark.sparkContext.setLogLevel(settings.get("log_level", "OFF"))
    try:
        code, message = run_job(spark, settings)
    finally:
        spark.stop()
    sys.stderr.write(message)
    return code


def run_job(spark: SparkSession, settings: dict[str, Any]) -> tuple[int, str]:
    """Run the job to its end.

    Returns:
        The exit code of a process that runs it, and what it prints at its end.
    """
    frame = read(spark, settings)
    frame = scatter(frame) if settings.get("scattered") else frame
    trigger = {"processingTime": "0 seconds"} if settings.get("forever") else {"availableNow": True}
    try:
        if "control" in settings:
            control(frame, settings, trigger)
        else:
            with unchecked() if settings.get("unchecked") else contextlib.nullcontext():
                writer(frame, settings).trigger(**trigger).start().await_termination()
    except TwoPhaseError as error:
        return error.exit_code, f"{type(error).__name__}: {error}\n"
    return 0, ""


def session(master: str) -> SparkSession:
    """A Spark as small as it gets."""
    spark = (
        SparkSession.builder.master(master)
        .config(map={**connector_conf()})
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    twophase.register(spark)
    return spark


def read(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    """The orders."""
    options = {
        "kafka.bootstrap.servers": settings["servers"],
        "subscribe": settings["topic"],
        "group.id": "integration",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(settings.get("records_per_batch", 1000)),
        **settings.get("source", {}),
    }
    orders = read_ours(spark, options) if LIMITED_READS.is_here else read_spark_s(spark, options)
    return (
        orders.dropDuplicates(["kafka_partition", "kafka_offset"])
        if settings.get("deduplicated")
        else orders
    )


def connector_conf() -> dict[str, str]:
    """Return the settings that Spark needs for `read`."""
    return {} if LIMITED_READS.is_here else {"spark.jars": peer_jars()}


def read_ours(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """By `twophase-kafka`."""
    ours = spark.readStream.format("twophase-kafka").option("value.format", "json")
    return ours.options(**options).schema(workload.SCHEMA).load()


def read_spark_s(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """By Spark's connector, where `twophase-kafka` is refused."""
    records = spark.readStream.format("kafka").options(**options).load()
    order = F.from_json(F.col("value").cast("string"), workload.SCHEMA)
    return records.select(
        order["id"].alias("id"),
        order["customer"].alias("customer"),
        order["amount"].alias("amount"),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
    )


def scatter(frame: DataFrame) -> DataFrame:
    """The rows in two partitions, by chance; a recomputed row may come to lie in the other one."""
    dice = F.udf(lambda: secrets.randbits(31), "int").asNondeterministic()
    return frame.repartition(2, dice()).mapInArrow(pass_shuffled, frame.schema)


def unchecked() -> contextlib.AbstractContextManager[Any]:
    """The product without its look at Spark's settings for shuffles."""
    return mock.patch.object(shuffles, "check")


def pass_shuffled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task has read from a shuffle."""
    failpoint(SHUFFLED)
    yield from batches


def writer(frame: DataFrame, settings: dict[str, Any]) -> twophase.StreamWriter:
    """The job."""
    described = twophase.write_stream(frame, name="orders").option(
        "checkpointLocation", settings["location"]
    )
    for name, options in settings["sinks"].items():
        described.sink(name, MySqlSink(**options))
    return described.options(**settings.get("options", {}))


def control(frame: DataFrame, settings: dict[str, Any], trigger: dict[str, Any]) -> None:
    """The same pipeline without the protocol."""
    folder = Path(settings["location"])

    def write(batch: DataFrame, number: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        halves = (rows[: len(rows) // 2], rows[len(rows) // 2 :])
        with (
            pymysql.connect(**settings["connection"], autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            write_in_halves(
                folder,
                number,
                settings["control"],
                "CONTROL",
                lambda half: insert(cursor, halves[half]),
            )

    location = str(folder / "spark")
    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", location)
        .trigger(**trigger)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
