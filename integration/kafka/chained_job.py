"""A job from a topic of orders, chained or not, for the tests of each sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

import twophase
from integration.kafka.topics import Topics
from twophase.contract.sink import Sink
from twophase.events import Event, SinkAcknowledged, SinksChained

COUNT = 600
ORDERS = [
    {
        "id": i,
        "customer": f"customer {i % 7} \N{SNOWMAN}",
        "amount": i / 8,
        "at": f"2026-03-08T07:{i % 60:02}:00.123456Z",
    }
    for i in range(COUNT)
]
_SCHEMA = "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP"
_PARTITIONS = 2


@dataclass
class Outcome:
    """What a job has done.

    Attributes:
        pieces: how many pieces and rows each sink has acknowledged in each checkpoint.
        records: as the job's progress has counted them.
        chained: the sinks that chained.
    """

    pieces: set[tuple[int, str, int, int]] = field(default_factory=set)
    records: int = 0
    chained: tuple[str, ...] = ()


def send_orders(topics: Topics) -> str:
    """Return a topic with `ORDERS`."""
    topic = topics.create(_PARTITIONS)
    for partition in range(_PARTITIONS):
        values = [json.dumps(one).encode() for one in ORDERS[partition::_PARTITIONS]]
        topics.send(topic, values, partition)
    return topic


def run_to_the_end(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    folder: Path,
    sinks: Mapping[str, Sink],
    chaining: str,
) -> Outcome:
    """Run a job with several checkpoints, and several tasks in each."""
    found = Outcome()

    def note(event: Event) -> None:
        if isinstance(event, SinksChained):
            found.chained = event.chained
        if isinstance(event, SinkAcknowledged):
            found.pieces.add((event.checkpoint, event.sink, event.pieces, event.rows))

    twophase.register(spark)
    reader = spark.readStream.format("twophase-kafka").schema(_SCHEMA)
    reader = reader.option("kafka.bootstrap.servers", topics.servers).option("subscribe", topic)
    reader = reader.options(**{"value.format": "json", "maxRecordsPerTrigger": "250"})
    writer = twophase.write_stream(reader.option("min_read_tasks", "3").load(), name="chained")
    for name, sink in sinks.items():
        writer.sink(name, sink)
    writer.option("checkpointLocation", str(folder)).option("chaining", chaining).observer(note)
    job = writer.option("restart.strategy", "none").trigger(availableNow=True).start()
    job.await_termination()
    found.records = job.status.query.records
    return found
