"""A driver process with four stateful jobs, each from Kafka into a MySQL table of its own.

    python -m integration.stateful.driver '{"servers": ..., "topics": {...}, "location": ...,
        "sink": {...}, ...}'

A job starts when the one before it has ended, or is held by a failpoint that is armed with a long
delay. So one SIGKILL can catch all of them at one crash point. At its end the driver writes down
what Spark's state data source shows of each job's state.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import twophase
from integration.mysql.driver import session
from integration.stateful.queries import QUERIES, Query
from integration.stateful.workload import BATCH
from twophase.events import CheckpointReplayed, Event
from twophase.internals import failpoints
from twophase.sinks.mysql.sink import MySqlSink
from twophase.spark.job.job import Job
from twophase.testing.parent_death import die_with_parent

# A loaded machine may start a Python worker more slowly than Spark waits for it: the
# query is started again.
_OPTIONS = {"restart.delay": "100 ms", "restart.delay_max": "500 ms"}
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_POLL_S = 0.05


def main(settings: dict[str, Any]) -> None:
    """Run every job until its input is used up."""
    die_with_parent()
    spark = session("local[2]")
    queries = {name: QUERIES[name] for name in settings["queries"]}
    for number, (name, query) in enumerate(queries.items()):
        spark.conf.set(
            _PROVIDER, f"org.apache.spark.sql.execution.streaming.state.{query.provider}"
        )
        job = start(spark, name, settings)
        while not job.await_termination(_POLL_S) and _held() <= number:
            pass
    if _held():
        threading.Event().wait()
    states = {name: list(state(spark, settings, name, query)) for name, query in queries.items()}
    Path(settings["state"]).write_text(json.dumps(states))
    spark.stop()


def _held() -> int:
    """How many jobs are held: each at the one armed failpoint."""
    log = Path(os.environ[failpoints.LOG_VARIABLE])
    return len(log.read_text().splitlines()) if log.exists() else 0


def start(spark: SparkSession, name: str, settings: dict[str, Any]) -> Job:
    """One job, as a user would write it."""
    rows = QUERIES[name].build(lambda topic, schema: read(spark, settings, topic, schema))

    def note(event: Event) -> None:
        if isinstance(event, CheckpointReplayed):
            with Path(settings["replays"]).open("a") as file:
                file.write(json.dumps([name, event.checkpoint, event.executed]) + "\n")

    return (
        twophase.write_stream(rows, name=name)
        .sink("facts", MySqlSink(table=name, **settings["sink"]))
        .options(**_OPTIONS, checkpointLocation=f"{settings['location']}/{name}")
        .options(**settings["options"])
        .trigger(availableNow=True)
        .observer(note)
        .start()
    )


def read(spark: SparkSession, settings: dict[str, Any], topic: str, schema: str) -> DataFrame:
    """One of the topics, in micro-batches that are the same in every run."""
    options = {
        "kafka.bootstrap.servers": settings["servers"],
        "subscribe": settings["topics"][topic],
        "uid": topic,
        "startingOffsets": "earliest",
        "value.format": "json",
        "maxRecordsPerTrigger": str(BATCH),
    }
    return spark.readStream.format("twophase-kafka").options(**options).schema(schema).load()


def state(
    spark: SparkSession, settings: dict[str, Any], name: str, query: Query
) -> Iterator[list[str]]:
    """Everything in the state of a job, one sorted list for each way of looking at it."""
    [lineage] = Path(f"{settings['location']}/{name}/spark").iterdir()
    for options in query.state:
        found = spark.read.format("statestore").options(**options).load(str(lineage))
        yield sorted(json.dumps(row.asDict(recursive=True), default=str) for row in found.collect())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
