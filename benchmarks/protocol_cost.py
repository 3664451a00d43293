"""The protocol's own cost of a checkpoint: everything but Spark and the targets
(`CheckpointCommitted.protocol_s`).

Measured twice: with sinks in memory and without Spark, and in a real job, Kafka to MySQL, with
small batches. The cost is mostly that of syncing three small files to disk: the body of the
checkpoint, DECIDED and COMMITTED.

    python -m benchmarks protocol_cost --checkpoints 200
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import click
import pyarrow as pa

from benchmarks.launch import Run, Services, new_kafka, new_mysql, run
from benchmarks.orders import count_and_drop, create_table, produce
from benchmarks.report import Result, histogram, milliseconds, table
from harness.memory_host import MemoryHost
from twophase.coordinator.commit.fan_out import sequentially
from twophase.engine.engine import Engine
from twophase.events import CheckpointCommitted, Event, Observers
from twophase.functions.operator_state import Redistribution
from twophase.options.job_options import JobOptions
from twophase.state.checkpoints.checkpoint import FrozenOffsets, OperatorStateFields, SourceState
from twophase.state.files.event_file import EventFile
from twophase.testing.memory import MemorySink, MemoryTarget
from twophase.testing.plain_host import ListedRows

_GOAL_MS = 30
_JOB = "protocol-cost"
_SCHEMA = pa.schema([("id", pa.int64())])
_ROWS = 10


@click.command("protocol_cost")
@click.option("--checkpoints", default=200, show_default=True, help="Checkpoints of each kind.")
@click.option(
    "--batch-records",
    default=1_000,
    show_default=True,
    help="Records in a micro-batch of the real job.",
)
@click.option("--sinks", default=2, show_default=True, help="Sinks in memory.")
def command(checkpoints: int, batch_records: int, sinks: int) -> None:
    """The protocol's own cost of a checkpoint: p50, p95, p99."""
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
        bare, told = without_spark(Path(folder) / "job", checkpoints, sinks)
    done = _real_job(checkpoints, batch_records)
    real = [checkpoint["protocol_s"] for checkpoint in done.checkpoints]
    histogram(f"Protocol, {sinks} sinks in memory, no Spark", bare)
    histogram("Protocol, Kafka to MySQL on Spark", real)
    shown = table(
        "The protocol's own cost of a checkpoint, ms",
        "where",
        "checkpoints",
        "p50",
        "p95",
        "p99",
        "max",
    )
    shown.add_row(f"{sinks} sinks in memory, no Spark", f"{len(bare)}", *milliseconds(bare))
    shown.add_row("its line in the file of events", f"{len(told)}", *milliseconds(told))
    shown.add_row("Kafka to MySQL on Spark", f"{len(real)}", *milliseconds(real))
    whole = statistics.median(batch.duration_s for batch in done.batches)
    share = statistics.median(real) / whole
    kept = (
        "kept"
        if 1000 * max(statistics.median(bare), statistics.median(real)) < _GOAL_MS
        else "missed"
    )
    goal = (
        f"Protocol / whole micro-batch of {batch_records:,} records (p50 {1000 * whole:.0f} ms): "
        f"[bold]{share:.3f}[/bold]; the goal of {_GOAL_MS} ms (p50) is {kept}."
    )
    others_cores = done.meter.others_cores()
    Result("protocol_cost", [shown], said=[goal], others_cores=others_cores).show()


def without_spark(folder: Path, checkpoints: int, sinks: int) -> tuple[list[float], list[float]]:
    """Take checkpoints of sinks in memory; return the seconds for each, of the protocol and of its
    line in the file of events.
    """
    costs: list[float] = []
    told: list[float] = []

    def observe(event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            costs.append(event.protocol_s)

    ids = (range(number * _ROWS, (number + 1) * _ROWS) for number in range(checkpoints))
    rows = [[pa.RecordBatch.from_pydict({"id": [*found]}, schema=_SCHEMA)] for found in ids]
    declared = {
        name: MemorySink(MemoryTarget(name)) for name in map("sink-{}".format, range(sinks))
    }
    options = JobOptions.parse({"checkpointLocation": str(folder)}, f"job {_JOB!r}")
    host = _Host(_JOB, options, ListedRows(rows))
    engine = Engine(host, _JOB, declared, options, Observers(observe), fan_out=sequentially)
    keep = EventFile(engine.storage, host.clock)

    def tell(event: Event) -> None:
        begin_s = time.perf_counter()
        keep(event)
        if isinstance(event, CheckpointCommitted):
            told.append(time.perf_counter() - begin_s)

    engine.observers.add(tell)
    engine.start()
    engine.await_termination()
    return costs, told


class _Host(MemoryHost):
    """Has the state of one source, as a real job has."""

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:
        """See `Host.snapshot`."""
        del checkpoint
        return {"sources": (SourceState("rows", "", Redistribution.UNION, (*offsets.end,)),)}


def _real_job(checkpoints: int, batch_records: int) -> Run:
    with new_kafka() as kafka, new_mysql() as mysql:
        topic = produce(kafka, checkpoints * batch_records, partitions=2)
        database = create_table(mysql)
        done = run(Services(kafka, mysql), "twophase", topic, database, batch_records)
        count_and_drop(mysql, database)
    return done
