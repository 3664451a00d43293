"""A job from a topic of orders, chained or not, for the tests of each sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import twophase
from harness.memory_driver import completed_of
from integration.kafka.topics import Topics
from twophase.contract.committable import Committable
from twophase.contract.sink import Sink
from twophase.events import CheckpointDecided, Event, SinksChained

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
JOB = "chained"
Pieces = dict[tuple[int, str], list[tuple[Any, ...]]]
"""Of each checkpoint and sink the committables, as `pieces_of` shows them."""
_SCHEMA = "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP"
_PARTITIONS = 2
_COUNTS = "files", "bytes", "partition", "chunks"


@dataclass
class Outcome:
    """What a job has done.

    Attributes:
        pieces: the committables.
        records: as the job's progress has counted them.
        chained: the sinks that chained.
    """

    pieces: Pieces = field(default_factory=dict)
    records: int = 0
    chained: tuple[str, ...] = ()


def send_orders(topics: Topics) -> str:
    """Return a topic with `ORDERS`."""
    topic = topics.create(_PARTITIONS)
    for partition in range(_PARTITIONS):
        values = [json.dumps(one).encode() for one in ORDERS[partition::_PARTITIONS]]
        topics.send(topic, values, partition)
    return topic


def pieces_of(folder: Path, checkpoint: int) -> Pieces:
    """The committables of a checkpoint that has just been decided, without what each run has of its
    own: targets, attempts, and in handles all but the names of what they have, and counts.
    """
    found = completed_of(folder, checkpoint, JOB).committables
    return {(checkpoint, sink): sorted(map(_shown, pieces)) for sink, pieces in found.items()}


def _shown(piece: Committable) -> tuple[Any, ...]:
    handle = [(key, value if key in _COUNTS else None) for key, value in piece.handle.items()]
    return piece.subtask.index, piece.rows, handle


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
        if isinstance(event, CheckpointDecided):
            found.pieces |= pieces_of(folder, event.checkpoint)

    twophase.register(spark)
    reader = spark.readStream.format("twophase-kafka").schema(_SCHEMA)
    reader = reader.option("kafka.bootstrap.servers", topics.servers).option("subscribe", topic)
    reader = reader.options(**{"value.format": "json", "maxRecordsPerTrigger": "250"})
    writer = twophase.write_stream(reader.option("min_read_tasks", "3").load(), name=JOB)
    for name, sink in sinks.items():
        writer.sink(name, sink)
    writer.option("checkpointLocation", str(folder)).option("chaining", chaining).observer(note)
    job = writer.option("restart.strategy", "none").trigger(availableNow=True).start()
    job.await_termination()
    found.records = job.status.query.records
    assert found.pieces
    return found
