"""Kafka to Delta: twophase against Delta's own streaming sink, from the same source.
Both are exactly once.

The same records, batch size, number of tasks and settings. Each pipeline runs in a separate
process, every time into a new table on the local disk. The ratio is that of the median
batch's rows a second.

    python -m benchmarks kafka_to_delta --records 4000000 --batch-records 500000 --rounds 2
    python -m benchmarks kafka_to_delta --snapshot-partitions 50
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.launch import Run, new_kafka, run_pipeline
from benchmarks.orders import produce
from twophase.sinks.delta.sink import DeltaSink
from twophase.testing.services import KafkaService
from twophase.testing.services.delta import fetch_delta

# twophase sets this for every sink; set it for the peer too, so that only the sinks differ.
ARROW = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50000"}
# As few as the tasks, like spark.sql.shuffle.partitions: with Delta's 50, reading a small log costs
# the peer more than its rows.
SNAPSHOT_PARTITIONS = 2
_GOALS = {"spark-delta": 0.95}


@click.command("kafka_to_delta")
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
@click.option(
    "--snapshot-partitions",
    default=SNAPSHOT_PARTITIONS,
    show_default=True,
    help="Tasks of the Spark job that reads a table's log, for both; Delta's own default is 50.",
)
def command(
    records: int,
    batch_records: int,
    partitions: int,
    rounds: int,
    warm_up: int,
    snapshot_partitions: int,
) -> None:
    """Kafka to Delta against Delta's own streaming sink, from the same source."""
    check_batches(records, batch_records, warm_up)
    pipelines = (
        Pipeline("twophase-delta", "twophase", "exactly once"),
        Pipeline("spark-delta", "Delta's streaming sink", "exactly once"),
    )
    conf = spark_settings(snapshot_partitions)
    with new_kafka() as kafka:
        topic = produce(kafka, records, partitions)
        alternate(
            pipelines,
            rounds,
            lambda name: run_to_delta(kafka, name, topic, records, batch_records, conf),
        )
    measured = (
        f"{records:,} records, batches of {batch_records:,}, {partitions} tasks, "
        f"{snapshot_partitions} of the log"
    )
    title = f"Kafka to Delta: {measured}"
    name = "kafka_to_delta"
    if snapshot_partitions != SNAPSHOT_PARTITIONS:
        name += f"-{snapshot_partitions}"
    compared(name, title, pipelines, warm_up, batch_records, _GOALS).show()


def spark_settings(snapshot_partitions: int = SNAPSHOT_PARTITIONS) -> dict[str, str]:
    """Return the settings that Spark needs to write to Delta."""
    small_log = {"spark.databricks.delta.snapshotPartitions": str(snapshot_partitions)}
    return {**DeltaSink.spark_conf(), **ARROW, **small_log, **fetch_delta()}


def run_to_delta(
    kafka: KafkaService,
    name: str,
    topic: str,
    records: int,
    batch_records: int,
    conf: dict[str, str],
    **settings: Any,
) -> Run:
    """Run a pipeline into a new table, and count its rows."""
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
        table = Path(folder) / "orders"
        done = run_pipeline(
            kafka, name, topic, batch_records, path=str(table), spark=conf, **settings
        )
        stored = _count(table)
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done


def _count(table: Path) -> int:
    """Return the number of rows that the commits of a table have added, by its log."""
    lines = (
        line
        for commit in (table / "_delta_log").glob("*.json")
        for line in commit.read_text().splitlines()
    )
    added = (action["add"] for action in map(json.loads, lines) if "add" in action)
    return sum(json.loads(add["stats"])["numRecords"] for add in added)
