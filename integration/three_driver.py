"""The driver process of the tests with three sinks: jobs from Kafka into MySQL, Delta and Hive, in one checkpoint.

    python -m integration.three_driver '{"servers": ..., "topic": ..., "location": ..., "jobs": ["one", "two"], ...}'

Several jobs run side by side, each into tables of its own. A failpoint armed with `delay:...@1` holds the first job that gets
there and lets the others pass, so that with as many points as jobs each job is held at another one: then one SIGKILL catches
them all. Each time a job has recovered, the rows of its three tables are noted, before it writes anything new.

Jobs named in `controls` run with the protocol switched off, here in the harness only, and die between MySQL and the others:
`duplicates` notes a batch as done after all three have it; `losses` before.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import twophase
from examples.demo.journal import Journal
from integration import delta_driver
from integration.driver import session
from integration.three_targets import DELTA, HIVE, MYSQL, PARTITION, Targets
from sinks.delta.sink import DeltaSink
from sinks.hive.sink import HiveSink
from sinks.mysql.sink import MySqlSink
from twophase.errors import TwoPhaseError
from twophase.events import Event, RecoveryFinished
from twophase.failpoints import DRIVER_VARIABLE, VARIABLE, failpoint
from twophase.testing.leash import die_with_parent

CONTROL = "CONTROL-{}"


def main(settings: dict[str, Any]) -> None:
    """Run every job until its input is used up, or for ever."""
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    die_with_parent()
    spark = session(settings["master"])
    work: list[Callable[[], None]] = [partial(run, spark, name, settings) for name in settings["jobs"]]
    work += [partial(control, spark, name, settings) for name in settings["controls"]]
    if f"{delta_driver.BEFORE_CHECKPOINT}=" in os.environ.get(VARIABLE, ""):
        table = Path(settings["lake"]) / settings["jobs"][0]
        work[0] = partial(delta_driver.run_to_checkpoint, spark, work[0], table)
    with ThreadPoolExecutor(len(work)) as pool:
        done, _ = wait([pool.submit(job) for job in work], None, FIRST_EXCEPTION)
        failed = [error for job in done if (error := job.exception()) is not None]
        if failed:  # the others would go on for ever
            sys.stderr.write(f"{type(failed[0]).__name__}: {failed[0]}\n")
            sys.stderr.flush()
            os._exit(failed[0].exit_code if isinstance(failed[0], TwoPhaseError) else 1)
    counts = {name: spark.table(name).count() for name in settings["jobs"]}
    Path(settings["counts"]).write_text(json.dumps(counts))
    spark.stop()


def targets(name: str, settings: dict[str, Any]) -> Targets:
    """The tables of a job."""
    return Targets(name, settings["connection"], Path(settings["lake"]), Path(settings["warehouse"]))


def run(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """One job, as a user would write it."""
    tables = targets(name, settings)

    def note(event: Event) -> None:
        if isinstance(event, RecoveryFinished):
            with Path(settings["journals"], f"{name}.recovered").open("a") as file:
                file.write(json.dumps(tables.rows()) + "\n")

    trigger: dict[str, Any] = {"processingTime": "0 seconds"} if settings["forever"] else {"availableNow": True}
    (
        twophase.write_stream(delta_driver.read(spark, name, settings), name=name)
        .sink(MYSQL, MySqlSink(**settings["mysql"], table=name))
        .sink(DELTA, DeltaSink(path=str(tables.delta), create=True))
        .sink(HIVE, HiveSink(table=name, create=True, partition_by=[PARTITION]))
        .option("checkpointLocation", f"{settings['location']}/{name}")
        .options(**settings["options"])
        .observer(Journal(f"{settings['journals']}/{name}.events"))
        .observer(note)
        .trigger(**trigger)
        .start()
        .await_termination()
    )


def control(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """The same pipeline without the protocol."""
    folder = Path(settings["location"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    tables = targets(name, settings)

    def write(batch: DataFrame, number: int) -> None:
        done = folder / f"done-{number}"
        if done.exists() or batch.isEmpty():
            return
        if name == "losses":
            done.touch()
        tables.insert([tuple(row) for row in batch.collect()])
        failpoint(CONTROL.format(name))
        batch.write.format("delta").mode("append").save(str(tables.delta))
        batch.write.partitionBy(PARTITION).mode("append").parquet(str(tables.hive))
        done.touch()

    query = delta_driver.read(spark, name, settings).writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "spark")).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
