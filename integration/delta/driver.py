"""The driver process of the Delta kill tests: several jobs side by side, each from Kafka into
a table of its own.

    python -m integration.delta.driver '{"servers": ..., "topic": ..., "location": ..., "lake": ...,
        "jobs": ["one", "two"]}'

Every job can be held at another crash point (`harness.held_jobs`). Points of this harness:

    C03, E01, E02, E03    in a task that feeds Delta's writer, when another task's data file is
                          complete: before the first row; in the middle; after the last row; after
                          the last row of a second attempt
    D03                   a commit of which Delta makes a checkpoint has landed, the
                          checkpoint has not

Jobs named in `controls` run with the protocol switched off, here in the harness only: `duplicates`
writes a batch in two visible halves before anything is noted; `losses` notes a batch as done
before it is written.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness import delta_lake, workload
from harness.held_jobs import acted, armed, run_jobs, wait_until
from harness.without_protocol import write_in_halves
from integration.mysql.driver import session
from twophase.internals.failpoints import be_the_driver, failpoint
from twophase.sinks.delta.sink import DeltaSink
from twophase.testing.parent_death import die_with_parent

CONTROL = "CONTROL-{}"
BEFORE_CHECKPOINT = "D03"
_CHECKPOINT_INTERVAL = 2


def main(settings: dict[str, Any]) -> None:
    """Run every job until its input is used up."""
    be_the_driver()
    die_with_parent()
    # Tasks that are held keep their slot. A task gets a second attempt.
    spark = session("local[4,2]")
    work: list[Callable[[], None]] = [
        partial(control, spark, name, settings) for name in settings["controls"]
    ]
    work += [partial(run, spark, name, settings) for name in settings["jobs"]]
    if armed(BEFORE_CHECKPOINT):
        work[-1] = partial(
            run_to_checkpoint, spark, work[-1], Path(settings["lake"]) / settings["jobs"][-1]
        )
    run_jobs(work)
    spark.stop()


def run(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """One job, as a user would write it."""
    table = Path(settings["lake"]) / name
    frame = read(spark, name, settings)
    frame = frame.mapInArrow(partial(feed, str(table)), frame.schema)
    # Every other job commits behind the next micro-batch, so a kill may find several
    # checkpoints of it decided.
    concurrent = 1 + settings["jobs"].index(name) % 2
    (
        twophase.write_stream(frame, name=name)
        .sink("lake", DeltaSink(path=str(table), create=True))
        .option("checkpointLocation", f"{settings['location']}/{name}")
        .option("checkpoint.max_concurrent", concurrent)
        .option("restart.delay", "100 ms")
        .trigger(availableNow=True)
        .start()
        .await_termination()
    )


def read(spark: SparkSession, name: str, settings: dict[str, Any]) -> DataFrame:
    """The orders; every job reads all of them."""
    options = {
        "kafka.bootstrap.servers": settings["servers"],
        "subscribe": settings["topic"],
        "group.id": name,
        "startingOffsets": "earliest",
        "value.format": "json",
        "maxRecordsPerTrigger": str(settings["records_per_batch"]),
    }
    return (
        spark.readStream.format("twophase-kafka").options(**options).schema(workload.SCHEMA).load()
    )


def feed(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one task, unchanged, with crash points in the second one."""
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() != 1:
        yield from batches
        return
    for batch in batches:
        pause("C03", table)
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        pause("E01", table)
        yield batch.slice(half)
    pause("E03" if task.attemptNumber() else "E02", table)


def pause(point: str, table: str) -> None:
    """A crash point, reached when the first task's data file is complete."""
    if armed(point) and not acted(point):
        wait_until(
            lambda: delta_lake.complete_unnamed_file(Path(table), 0),
            f"the first task's file in {table}",
        )
        failpoint(point)


def run_to_checkpoint(spark: SparkSession, job: Callable[[], None], table: Path) -> None:
    """Run a job, the last one; stop Spark at the commit before a checkpoint of its table.

    Delta has no crash point there, so its process is stopped from outside when the commit is seen.
    """
    spark.sql(
        f"ALTER TABLE delta.`{table}` SET "
        f"TBLPROPERTIES ('delta.checkpointInterval' = '{_CHECKPOINT_INTERVAL}')"
    )
    before = int(delta_lake.commits(table)[-1].stem)
    [java] = [child for child in psutil.Process().children() if "java" in child.name()]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job)
        wait_until(
            lambda: running.done() or _awaits_checkpoint(table, before), f"a commit in {table}"
        )
        if running.done():
            running.result()
            raise AssertionError(f"the job ended without a checkpoint of {table}")
        java.send_signal(signal.SIGSTOP)
        failpoint(BEFORE_CHECKPOINT)


def _awaits_checkpoint(table: Path, before: int) -> bool:
    """Whether the newest commit has rows, is not an old one, and is one that Delta writes
    a checkpoint after.
    """
    newest = delta_lake.commits(table)[-1]
    number = int(newest.stem)
    return (
        number > before and number % _CHECKPOINT_INTERVAL == 0 and delta_lake.added_rows(newest) > 0
    )


def control(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """The same pipeline without the protocol."""
    folder = Path(settings["location"]) / name

    def write(batch: DataFrame, number: int) -> None:
        def write_half(half: int) -> None:
            rows = batch.where(f"id % 2 = {half}")
            rows.write.format("delta").mode("append").save(f"{settings['lake']}/{name}")

        write_in_halves(folder, number, name, CONTROL.format(name), write_half)

    query = read(spark, name, settings).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "spark")).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
