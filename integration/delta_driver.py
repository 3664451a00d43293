"""The driver process of the Delta kill tests: several jobs side by side, each from Kafka into a table of its own.

    python -m integration.delta_driver '{"servers": ..., "topic": ..., "location": ..., "lake": ..., "jobs": ["one", "two"]}'

A failpoint armed with `delay:...@1` holds the first job that gets there and lets the others pass. Each job begins when the one
before it is held, so that every job is held at another point: then one SIGKILL catches them all. Points of this harness:

    C03, E01, E02, E03    in a task that feeds Delta's writer, when another task's data file is complete: before the first
                          row; in the middle; after the last row; after the last row of a second attempt
    D03                   a commit of which Delta makes a checkpoint has landed, the checkpoint has not

Jobs named in `controls` run with the protocol switched off, here in the harness only: `duplicates` writes a batch in two
visible halves before anything is noted; `losses` notes a batch as done before it is written.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import twophase
from integration import delta_lake, workload
from integration.driver import session
from sinks.delta.sink import DeltaSink
from twophase.failpoints import DRIVER_VARIABLE, LOG_VARIABLE, VARIABLE, failpoint
from twophase.testing.leash import die_with_parent

CONTROL = "CONTROL-{}"
BEFORE_CHECKPOINT = "D03"
_AT_ONCE = 4
_WAIT_S = 900.0
_POLL_S = 0.005
_CHECKPOINT_INTERVAL = 2


def main(settings: dict[str, Any]) -> None:
    """Run every job until its input is used up."""
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    die_with_parent()
    # Tasks that are held keep their slot. A task gets a second attempt.
    spark = session("local[4,2]")
    work: list[Callable[[], None]] = [partial(control, spark, name, settings) for name in settings["controls"]]
    work += [partial(run, spark, name, settings) for name in settings["jobs"]]
    if _armed(BEFORE_CHECKPOINT):
        work[-1] = partial(run_to_checkpoint, spark, work[-1], Path(settings["lake"]) / settings["jobs"][-1])
    holding = "=delay:" in os.environ.get(VARIABLE, "")
    with ThreadPoolExecutor(len(work) if holding else _AT_ONCE) as pool:
        jobs: list[Future[None]] = []
        for job in work:
            held = _held()
            jobs.append(pool.submit(job))
            if holding:
                _wait_until(lambda held=held: _held() > held or jobs[-1].done(), "a job to be held")
        done, _ = wait(jobs, None, FIRST_EXCEPTION)
        failed = [error for ended in done if (error := ended.exception()) is not None]
        if failed:  # the others would go on for ever
            sys.stderr.write(f"{type(failed[0]).__name__}: {failed[0]}\n")
            sys.stderr.flush()
            os._exit(1)
    spark.stop()


def run(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """One job, as a user would write it."""
    table = Path(settings["lake"]) / name
    frame = read(spark, name, settings)
    frame = frame.mapInArrow(partial(feed, str(table)), frame.schema)
    # Every other job commits behind the next micro-batch, so a kill may find several checkpoints of it decided.
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
    return spark.readStream.format("twophase-kafka").options(**options).schema(workload.SCHEMA).load()


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
    if _armed(point) and not _acted(point):
        _wait_until(lambda: delta_lake.complete_unnamed_file(Path(table), 0), f"the first task's file in {table}")
        failpoint(point)


def run_to_checkpoint(spark: SparkSession, job: Callable[[], None], table: Path) -> None:
    """Run a job, the last one; stop Spark at the commit before a checkpoint of its table.

    Delta has no crash point there, so its process is stopped from outside when the commit is seen.
    """
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '{_CHECKPOINT_INTERVAL}')")
    before = int(delta_lake.commits(table)[-1].stem)
    [java] = [child for child in psutil.Process().children() if "java" in child.name()]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(job)
        _wait_until(lambda: _awaits_checkpoint(table, before), f"a commit in {table}")
        java.send_signal(signal.SIGSTOP)
        failpoint(BEFORE_CHECKPOINT)


def _awaits_checkpoint(table: Path, before: int) -> bool:
    """Whether the newest commit has rows, is not an old one, and is one that Delta writes a checkpoint after."""
    newest = delta_lake.commits(table)[-1]
    number = int(newest.stem)
    return number > before and number % _CHECKPOINT_INTERVAL == 0 and delta_lake.added_rows(newest) > 0


def _armed(point: str) -> bool:
    return f"{point}=" in os.environ.get(VARIABLE, "")


def _held() -> int:
    """How many points have acted."""
    log = Path(os.environ[LOG_VARIABLE])
    return len(log.read_text().splitlines()) if log.exists() else 0


def _acted(point: str) -> bool:
    return Path(f"{os.environ[LOG_VARIABLE]}.{point}").exists()


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {_WAIT_S:g} s for {what}")
        time.sleep(_POLL_S)


def control(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """The same pipeline without the protocol."""
    folder = Path(settings["location"]) / name
    folder.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        done = folder / f"done-{number}"
        if done.exists():
            return
        if name == "losses":
            done.touch()
        for half in (0, 1):
            rows = batch.where(f"id % 2 = {half}")
            rows.write.format("delta").mode("append").save(f"{settings['lake']}/{name}")
            if half == 0:
                failpoint(CONTROL.format(name))
        done.touch()

    query = read(spark, name, settings).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "spark")).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
