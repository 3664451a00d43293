"""The cost of phase 2 in the Kafka sink: commits of some pieces, one checkpoint after the other,
with the look at the fence before each and the mark that stands for its proofs behind it.

The topic of the broker has one replica. `tick` is a checkpoint without its rows: all three. The
median is that of the last tenth of the checkpoints before each number of them, at least five.

    python -m benchmarks kafka_commit --checkpoints 10,100,1000 --pieces 2
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import click
import pyarrow as pa
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from benchmarks.growth import counts, median_at
from benchmarks.launch import new_kafka
from benchmarks.report import Curve, Ratio, Result, table
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, OpenArrowSink, Predecessor, SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.sinks.kafka import KafkaSink

_SCHEMA = pa.schema([("id", pa.int64())])
_FIRST = Attempt(1, 1)
_STEPS = ("fence", "commit", "subsume", "tick")


@click.command("kafka_commit")
@counts("checkpoints")
@click.option("--pieces", default=2, show_default=True, help="Pieces of each.")
def command(checkpoints: tuple[int, ...], pieces: int) -> None:
    """A commit to Kafka after 10, 100 and 1,000 checkpoints: milliseconds for each step."""
    with new_kafka() as kafka:
        servers = kafka.bootstrap_servers
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=2, replication_factor=1)])
        declared = KafkaSink(**{"kafka.bootstrap.servers": servers}, topic="orders")
        context = SinkContext("bench", "orders", _SCHEMA, parallelism=pieces)
        with closing(declared.open(context)) as sink:
            sink.fence(_FIRST)
            found = _checkpoints(sink, checkpoints[-1], pieces)
    columns = (f"p50 ms, {count:,} checkpoints" for count in checkpoints)
    shown = table(f"A commit of {pieces} pieces", "step", *columns)
    medians = {
        step: [median_at([one[step] for one in found], count) for count in checkpoints]
        for step in _STEPS
    }
    for step, told in medians.items():
        shown.add_row(step, *(f"{ms:.1f}" for ms in told))
    ticks = medians["tick"]
    first, last = (f"{count:,} checkpoints" for count in (checkpoints[0], checkpoints[-1]))
    Result(
        "kafka_commit",
        [shown],
        [Ratio(last, first, ticks[-1] / ticks[0], "ms a tick")],
        [Curve("ms a tick", "checkpoints", [*zip(checkpoints, ticks, strict=True)])],
    ).show()


def _checkpoints(sink: OpenArrowSink, count: int, pieces: int) -> list[dict[str, float]]:
    """Return the milliseconds of each step of each checkpoint."""
    lineage, found = new_lineage_id(), []
    for number in range(count):
        steps: dict[str, float] = {}
        factory = _timed(steps, "fence", sink.writers)
        transaction = TransactionId("bench", lineage, number, _FIRST, "orders", "0" * 64)
        made = []
        for task in range(pieces):
            writer = factory(transaction, Subtask(task, number))
            writer.write(pa.RecordBatch.from_pydict({"id": [number]}, schema=_SCHEMA))
            piece = writer.pre_commit()
            assert piece is not None
            made.append(piece)
        before = Predecessor(lineage, number - 1) if number else None
        _timed(steps, "commit", partial(_commit, sink, made, before))
        _timed(steps, "subsume", partial(sink.subsume, lineage, number))
        found.append({**steps, "tick": sum(steps.values())})
    return found


def _commit(sink: OpenArrowSink, made: list[Committable], before: Predecessor | None) -> None:
    outcomes = sink.commit([CommitRequest(piece, 0, before) for piece in made])
    if outcomes != [Committed()] * len(made):
        raise RuntimeError(f"the commit ended with {outcomes}")


def _timed(steps: dict[str, float], step: str, call: Callable[[], Any]) -> Any:
    began_s = time.perf_counter()
    answer = call()
    steps[step] = 1000 * (time.perf_counter() - began_s)
    return answer
