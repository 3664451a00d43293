"""The driver process of the Delta kill tests: several jobs side by side, each from Kafka into a table of its own.

    python -m integration.delta_driver '{"servers": ..., "topic": ..., "location": ..., "lake": ..., "jobs": ["one", "two"]}'

A failpoint armed with `delay:...@1` holds the first job that gets there and lets the others pass, so that with as many
points as jobs each job is held at another one: then one SIGKILL catches them all.

Jobs named in `controls` run with the protocol switched off, here in the harness only: `duplicates` writes a batch in two
visible halves before anything is noted; `losses` notes a batch as done before it is written.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import twophase
from integration import workload
from integration.driver import session
from sinks.delta.sink import DeltaSink
from twophase.failpoints import DRIVER_VARIABLE, failpoint
from twophase.testing.leash import die_with_parent

CONTROL = "CONTROL-{}"


def main(settings: dict[str, Any]) -> None:
    """Run every job until its input is used up."""
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    die_with_parent()
    spark = session("local[2]")
    work = [(run, name) for name in settings["jobs"]] + [(control, name) for name in settings["controls"]]
    with ThreadPoolExecutor(len(work)) as pool:
        done, _ = wait([pool.submit(function, spark, name, settings) for function, name in work], None, FIRST_EXCEPTION)
        failed = [job.exception() for job in done if job.exception() is not None]
        if failed:  # the others would go on for ever
            sys.stderr.write(f"{type(failed[0]).__name__}: {failed[0]}\n")
            sys.stderr.flush()
            os._exit(1)
    spark.stop()


def run(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """One job, as a user would write it."""
    (
        twophase.write_stream(read(spark, name, settings), name=name)
        .sink("lake", DeltaSink(path=f"{settings['lake']}/{name}", create=True))
        .option("checkpointLocation", f"{settings['location']}/{name}")
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
