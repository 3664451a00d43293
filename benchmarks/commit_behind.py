"""The gain of `checkpoint.max_concurrent`: commits behind the next micro-batch against
commits before it.

The same job, Kafka to Delta, with 2 and with 1. A Delta commit reads and writes the table's log,
mostly waiting; the smaller the micro-batch, the larger its share. The ratio is that of the median
batch's rows a second.

    python -m benchmarks commit_behind --records 1200000 --batch-records 50000 --rounds 2
"""

from __future__ import annotations

import click

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.kafka_to_delta import run_to_delta, spark_settings
from benchmarks.launch import new_kafka
from benchmarks.orders import produce

_BEHIND, _BEFORE = "behind", "before"


@click.command("commit_behind")
@contest_options(records=1_200_000, batch_records=50_000, warm_up=8)
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """Commits behind the next micro-batch against commits before it."""
    check_batches(records, batch_records, warm_up)
    pipelines = (
        Pipeline(_BEHIND, "max_concurrent = 2", "exactly once"),
        Pipeline(_BEFORE, "max_concurrent = 1", "exactly once"),
    )
    conf = spark_settings()
    with new_kafka() as kafka:
        topic = produce(kafka, records, partitions)
        alternate(
            pipelines,
            rounds,
            lambda name: run_to_delta(
                kafka,
                "twophase-delta",
                topic,
                records,
                batch_records,
                conf,
                options={"checkpoint.max_concurrent": 2 if name == _BEHIND else 1},
            ),
        )
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    title = f"Kafka to Delta: {measured}"
    compared("commit_behind", title, pipelines, warm_up, batch_records).show()
