"""Reading Kafka: `twophase-kafka` against Spark's own connector, with rows that nobody writes.

The records as they are, and as JSON: parsed by our source, or by `from_json`. The same records,
batch size, number of tasks and settings; each pipeline runs in a separate process.

    python -m benchmarks kafka_read --records 8000000 --batch-records 500000 --rounds 2
"""

from __future__ import annotations

import click

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.jars import peer_jars
from benchmarks.launch import Run, new_kafka, run_pipeline
from benchmarks.orders import produce
from twophase.testing.services import KafkaService

_TITLES = {"read": "twophase-kafka", "spark-read": "Spark's connector"}


@click.command("kafka_read")
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """Reading Kafka, raw and as JSON, against Spark's own connector."""
    check_batches(records, batch_records, warm_up)
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    jars = peer_jars()
    with new_kafka() as kafka:
        topic = produce(kafka, records, partitions)
        for values, raw in {"raw": True, "JSON": False}.items():
            pipelines = [Pipeline(name, title, "no sink") for name, title in _TITLES.items()]

            def one(name: str, raw: bool = raw) -> Run:
                return _run(kafka, name, topic, records, batch_records, jars, raw=raw)

            alternate(pipelines, rounds, one)
            name, title = f"kafka_read-{values.lower()}", f"Kafka to nowhere, {values}: {measured}"
            compared(name, title, pipelines, warm_up, batch_records).show()


def _run(
    kafka: KafkaService,
    name: str,
    topic: str,
    records: int,
    batch_records: int,
    jars: str,
    *,
    raw: bool,
) -> Run:
    conf = {"spark.jars": jars} if name == "spark-read" else {}
    done = run_pipeline(kafka, name, topic, batch_records, raw=raw, spark=conf)
    read = sum(batch.rows for batch in done.batches)
    if read != records:
        raise RuntimeError(f"{name} read {read} of {records} records")
    return done
