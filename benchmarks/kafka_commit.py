"""The cost of phase 2 in the Kafka sink: commits of some pieces, one checkpoint after the other,
with the look at the fence before each and the mark that stands for its proofs behind it.

    python -m benchmarks kafka_commit --checkpoints 60 --pieces 2

The topic of the broker has one replica. `tick` is a checkpoint without its rows: all three.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import click
import pyarrow as pa
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from benchmarks.launch import new_kafka
from benchmarks.report import Ratio, Result, table
from harness.figures import percentile
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, OpenArrowSink, Predecessor, SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.sinks.kafka import KafkaSink

_SCHEMA = pa.schema([("id", pa.int64())])
_FIRST = Attempt(1, 1)
_STEPS = ("fence", "commit", "subsume", "tick")
_WARM_UP = 5


@click.command("kafka_commit")
@click.option("--checkpoints", default=60, show_default=True, help="Commits that count.")
@click.option("--pieces", default=2, show_default=True, help="Pieces of each.")
def command(checkpoints: int, pieces: int) -> None:
    """Commit pieces of the Kafka sink: milliseconds for each step, and growth."""
    with new_kafka() as kafka:
        servers = kafka.bootstrap_servers
        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=2, replication_factor=1)])
        declared = KafkaSink(**{"kafka.bootstrap.servers": servers}, topic="orders")
        context = SinkContext("bench", "orders", _SCHEMA, parallelism=pieces)
        with closing(declared.open(context)) as sink:
            sink.fence(_FIRST)
            found = _checkpoints(sink, checkpoints + _WARM_UP, pieces)[_WARM_UP:]
    title = f"{checkpoints} commits of {pieces} pieces"
    shown = table(title, "step", "p50 ms", "p90 ms", "max ms")
    for step in _STEPS:
        took = [one[step] for one in found]
        told = (statistics.median(took), percentile(took, 0.9), max(took))
        shown.add_row(step, *(f"{ms:.1f}" for ms in told))
    half = len(found) // 2
    early, late = (
        statistics.median(one["tick"] for one in part) for part in (found[:half], found[half:])
    )
    growth = Ratio("the second half", "the first", late / early, "ms a tick")
    Result("kafka_commit", [shown], [growth]).show()


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
