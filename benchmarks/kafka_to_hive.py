"""Kafka to a Hive table of parquet: twophase against Spark's own file sink, from the same source
and from Spark's Kafka connector, which is what people have today.

twophase runs twice: with its tasks chained to the source, and with rows that go through Spark. The
same records, batch size, number of tasks and settings. Each pipeline runs in a separate
process, every time into a new folder on the local disk; twophase also keeps the table in an
embedded metastore. The files of Spark's sink count only for readers of the log that it keeps in the
folder; those of twophase are in the table once they have their final names. The ratio is that of
the median batch's rows a second.

    python -m benchmarks kafka_to_hive --records 8000000 --batch-records 500000 --rounds 2
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.driver import HIVE
from benchmarks.jars import peer_jars
from benchmarks.kafka_to_delta import ARROW
from benchmarks.kafka_to_mysql import CHAINED, CHAINING, UNCHAINED
from benchmarks.launch import Run, new_kafka, run_pipeline
from benchmarks.orders import TABLE, produce
from harness.hive_settings import hive_settings
from harness.order_files import parquet_rows
from twophase.sinks.hive.sink import HiveSink
from twophase.testing.services import KafkaService

_GOALS = {"spark-files": 1.7}


@click.command("kafka_to_hive")
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """Kafka to Hive parquet against Spark's own file sink, from two sources."""
    check_batches(records, batch_records, warm_up)
    pipelines = (
        Pipeline(CHAINED, "twophase, chained", "exactly once"),
        Pipeline(UNCHAINED, "twophase, not chained", "exactly once"),
        Pipeline("spark-files", "Spark's file sink", "exactly once"),
        Pipeline("spark-kafka-files", "Spark Kafka + file sink", "exactly once"),
    )
    with new_kafka() as kafka:
        topic = produce(kafka, records, partitions)
        alternate(pipelines, rounds, lambda name: _run(kafka, name, topic, records, batch_records))
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    title = f"Kafka to Hive, parquet: {measured}"
    compared("kafka_to_hive", title, pipelines, warm_up, batch_records, _GOALS).show()


def _run(kafka: KafkaService, name: str, topic: str, records: int, batch_records: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as scratch:
        folder = Path(scratch)
        table = folder / "warehouse" / TABLE
        conf = {**HiveSink.spark_conf(), **ARROW, **hive_settings(folder)}
        if name == "spark-kafka-files":
            conf["spark.jars"] = peer_jars()
        done = run_pipeline(
            kafka,
            "several" if name in CHAINING else name,
            topic,
            batch_records,
            path=str(table),
            sinks=[HIVE],
            spark=conf,
            options={"chaining": CHAINING[name]} if name in CHAINING else {},
        )
        stored = parquet_rows(table)
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done
