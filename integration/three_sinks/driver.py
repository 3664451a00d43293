"""The driver process of the tests with three sinks: jobs into MySQL, Delta and Hive,
in one checkpoint.

    python -m integration.three_sinks.driver '{"orders": ..., "location": ..., "jobs":
        ["one", "two"], ...}'

The orders come from JSON files by Spark's own file source, so that many jobs fit on a small machine
(`integration.files.driver`); with `kafka`, from a topic, whose rows can chain.

Several jobs run side by side, each into tables of its own; every one can be held at another crash
point (`harness.held_jobs`). Each time a job has recovered, the rows of its three tables are noted,
before it writes anything new.

What a test may do to a job: hold a sink back, before its pre-commit, as long as a file in the
folder `gates` has its name; have every row get another customer, by chance, each time that it is
computed (`drawn`); arm the point DELTA, in a task that has given all its rows to Delta's writer.

Jobs named in `controls` run with the protocol switched off, here in the harness only, and die
between MySQL and the others: `duplicates` notes a batch as done after all three have
it; `losses` before.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness.held_jobs import armed, run_jobs, wait_until
from harness.order_files import BATCH
from harness.three_targets import DELTA, HIVE, MYSQL, PARTITION, SINKS, Targets
from harness.without_protocol import write_in_halves
from integration.delta import driver as delta_driver
from integration.files import driver as files_driver
from integration.mysql import driver as mysql_driver
from twophase.contract.sink import Sink
from twophase.events import Event, RecoveryFinished
from twophase.internals.failpoints import be_the_driver, failpoint
from twophase.sinks.delta.sink import DeltaSink
from twophase.sinks.hive.sink import HiveSink
from twophase.sinks.mysql.sink import MySqlSink
from twophase.testing.journal import Journal
from twophase.testing.parent_death import die_with_parent

CONTROL = "CONTROL-{}"
IN_DELTA_TASK = "DELTA"


def main(settings: dict[str, Any]) -> None:
    """Run every job until its input is used up, or for ever."""
    be_the_driver()
    die_with_parent()
    spark = mysql_driver.session(settings["master"])
    spark.conf.set("spark.sql.files.openCostInBytes", "128MB")  # a task for each file
    work: list[Callable[[], None]] = [
        partial(control, spark, name, settings) for name in settings["controls"]
    ]
    work += [partial(run, spark, name, settings) for name in settings["jobs"]]
    if armed(delta_driver.BEFORE_CHECKPOINT):
        table = Path(settings["lake"]) / settings["jobs"][-1]
        work[-1] = partial(delta_driver.run_to_checkpoint, spark, work[-1], table)
    run_jobs(work)
    counts = {name: spark.table(name).count() for name in settings["jobs"]}
    Path(settings["counts"]).write_text(json.dumps(counts))
    spark.stop()


def targets(name: str, settings: dict[str, Any]) -> Targets:
    """The tables of a job."""
    return Targets(
        name, settings["connection"], Path(settings["lake"]), Path(settings["warehouse"])
    )


def run(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """One job, as a user would write it."""
    tables = targets(name, settings)

    def note(event: Event) -> None:
        if isinstance(event, RecoveryFinished):
            with Path(settings["journals"], f"{name}.recovered").open("a") as file:
                file.write(json.dumps(tables.rows()) + "\n")

    trigger: dict[str, Any] = (
        {"processingTime": "0 seconds"} if settings["forever"] else {"availableNow": True}
    )
    rows = read(spark, name, settings)
    writer = twophase.write_stream(
        rows.mapInArrow(draw, rows.schema) if settings["drawn"] else rows, name=name
    )
    sinks: dict[str, Sink] = {
        MYSQL: MySqlSink(**settings["mysql"], table=name),
        DELTA: DeltaSink(path=str(tables.delta), create=True),
        HIVE: HiveSink(table=name, create=True, partition_by=[PARTITION]),
    }
    for sink in SINKS:
        change = feed if sink == DELTA else pass_gate
        gate = Path(settings["gates"], sink)
        writer.sink(sink, sinks[sink], transform=partial(change, gate))
    (
        writer.option("checkpointLocation", f"{settings['location']}/{name}")
        .options(**settings["options"])
        .observer(Journal(f"{settings['journals']}/{name}.events"))
        .observer(note)
        .trigger(**trigger)
        .start()
        .await_termination()
    )


def read(spark: SparkSession, name: str, settings: dict[str, Any]) -> DataFrame:
    """The orders, a micro-batch of two partitions or two files."""
    if "kafka" not in settings:
        return files_driver.read(spark, settings)
    more = {"source": {"group.id": name}, "records_per_batch": BATCH}
    return mysql_driver.read(spark, settings["kafka"] | more)


def pass_gate(gate: Path, rows: DataFrame) -> DataFrame:
    """The rows of one sink, when nothing holds it back. The columns, which it asks for when it is
    opened, it has at once.
    """
    if not rows.isStreaming:
        wait_until(lambda: not gate.exists(), f"{gate} to be gone")
    return rows


def feed(gate: Path, rows: DataFrame) -> DataFrame:
    """The rows for Delta, with its crash point if that is armed."""

    def given(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        failpoint(IN_DELTA_TASK)

    return pass_gate(gate, rows.mapInArrow(given, rows.schema) if armed(IN_DELTA_TASK) else rows)


def draw(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Orders of customers that nobody can compute a second time."""
    for batch in batches:
        customers = pa.array([uuid.uuid4().hex for _ in range(batch.num_rows)], pa.string())
        yield batch.set_column(batch.schema.get_field_index("customer"), "customer", customers)


def control(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """The same pipeline without the protocol."""
    folder = Path(settings["location"]) / name
    tables = targets(name, settings)

    def write(batch: DataFrame, number: int) -> None:
        def write_half(half: int) -> None:
            if half == 0:
                tables.insert([tuple(row) for row in batch.collect()])
            else:
                batch.write.format("delta").mode("append").save(str(tables.delta))
                batch.write.partitionBy(PARTITION).mode("append").parquet(str(tables.hive))

        if not batch.isEmpty():
            write_in_halves(folder, number, name, CONTROL.format(name), write_half)

    query = (
        files_driver.read(spark, settings)
        .writeStream.foreachBatch(write)
        .trigger(availableNow=True)
    )
    query.option("checkpointLocation", str(folder / "spark")).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
