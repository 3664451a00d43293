"""The driver process of the kill tests of the sinks that write files: several jobs side by side,
each into a table of its own.

    python -m integration.files.driver '{"orders": ..., "location": ..., "jobs": {"one": {"type":
        "file", ...}}, ...}'

The orders come from JSON files by Spark's own file source: the only Python processes are the driver
and the writers, so that many jobs fit on a small machine.

A failpoint armed with `delay:...@1` holds the first job that gets there and lets the others pass,
so that with as many points as jobs each job is held at another one: then one
SIGKILL catches them all.

Jobs named in `controls` run with the protocol switched off, here in the harness only: `duplicates`
writes a batch in two visible halves before anything is noted; `losses` notes a batch as done
before it is written.
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
from harness import workload
from harness.without_protocol import write_in_halves
from integration.mysql.driver import session
from twophase.internals.failpoints import be_the_driver
from twophase.sinks.file.sink import FileSink
from twophase.sinks.hive.sink import HiveSink
from twophase.testing.parent_death import die_with_parent

CONTROL = "CONTROL-{}"
SINKS = {"file": FileSink, "hive": HiveSink}


def main(settings: dict[str, Any]) -> None:
    """Run every job until its input is used up."""
    be_the_driver()
    die_with_parent()
    spark = session(settings["master"])
    spark.conf.set("spark.sql.files.openCostInBytes", "128MB")  # a task for each file
    work = [(run, name) for name in settings["jobs"]] + [
        (control, name) for name in settings["controls"]
    ]
    with ThreadPoolExecutor(len(work)) as pool:
        done, _ = wait(
            [pool.submit(function, spark, name, settings) for function, name in work],
            None,
            FIRST_EXCEPTION,
        )
        failed = [job.exception() for job in done if job.exception() is not None]
        if failed:  # the others would go on for ever
            sys.stderr.write(f"{type(failed[0]).__name__}: {failed[0]}\n")
            sys.stderr.flush()
            os._exit(1)
    tables = {
        name: options["table"] for name, options in settings["jobs"].items() if "table" in options
    }
    counts = {name: spark.table(table).count() for name, table in tables.items()}
    Path(settings["counts"]).write_text(json.dumps(counts))
    spark.stop()


def run(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """One job, as a user would write it."""
    options = dict(settings["jobs"][name])
    concurrent = options.pop("max_concurrent", 1)
    sink = SINKS[options.pop("type")](**options)
    (
        twophase.write_stream(read(spark, settings), name=name)
        .sink("lake", sink)
        .option("checkpointLocation", f"{settings['location']}/{name}")
        .option("checkpoint.max_concurrent", concurrent)
        .option("restart.delay", "100 ms")
        .trigger(availableNow=True)
        .start()
        .await_termination()
    )


def read(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    """The orders; every job reads all of them, two files in a micro-batch."""
    return (
        spark.readStream.schema(workload.SCHEMA)
        .option("maxFilesPerTrigger", 2)
        .json(settings["orders"])
    )


def control(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """The same pipeline without the protocol."""
    folder = Path(settings["location"]) / name

    def write(batch: DataFrame, number: int) -> None:
        def write_half(half: int) -> None:
            rows = batch.where(f"id % 2 = {half}")
            rows.write.partitionBy("kafka_partition").mode("append").parquet(
                settings["controls"][name]
            )

        write_in_halves(folder, number, name, CONTROL.format(name), write_half)

    query = read(spark, settings).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "spark")).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
