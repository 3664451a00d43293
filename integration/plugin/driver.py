"""The driver process of the tests of the plugin form: queries from Kafka, each into a table of its
own by `writeStream.format`.

    python -m integration.plugin.driver '{"servers": ..., "topic": ..., "location": ...,
        "jobs": {"one": {...}}}'

With `remote` the queries run on that server of Spark Connect, and this process is its client, whose
session has the settings of `conf` beside the server's; null takes one back to Spark's default. When
the server was killed and another one is there, it goes on with that. The format `write_stream` asks
for the other form, which is refused there.

Each job's settings are the `format` and the `options` of its query. The format `control` is a sink
without the protocol, here in the harness only: its tasks write visibly, and its
commit does nothing.

A failpoint armed with `delay:...@1` holds the first job that gets there and lets the others pass,
so that with as many points as jobs each job is held at another one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import twophase
from integration.mysql.driver import read, session
from twophase import errors
from twophase.errors import TwoPhaseError
from twophase.internals.failpoints import be_the_driver, failpoint
from twophase.testing.parent_death import die_with_parent

CONTROL = "control"
WRITE_STREAM = "write_stream"
DIED_WHILE_IT_ANSWERED = "[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND"
"""Spark's error, if the server dies after a part of its answer. The session is active still."""
_POLL_S = 1
_STARTING_POLL_S = 0.1
_STARTS = 3
_TOO_BUSY = "Python worker failed to connect back"


@dataclass
class Rows(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


class ControlWriter(DataSourceStreamArrowWriter):
    """Writes visibly in the tasks."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Insert all rows."""
        written = 0
        connection = pymysql.connect(**json.loads(self._options["connection"]), autocommit=True)
        with connection, connection.cursor() as cursor:
            for batch in iterator:
                rows = [tuple(row.values()) for row in batch.to_pylist()]
                cursor.executemany(
                    f"INSERT INTO {self._options['table']} VALUES (%s, %s, %s, %s, %s)", rows
                )
                written += len(rows)
        return Rows(written)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do; here the driver dies. A micro-batch without
        records has one task.
        """
        if sum(message.rows for message in messages if isinstance(message, Rows)):
            failpoint("CONTROL")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be done."""


class ControlDataSource(DataSource):
    """The format `control`."""

    @classmethod
    def name(cls) -> str:
        """Its name."""
        return CONTROL

    def streamWriter(self, schema: StructType, overwrite: bool) -> ControlWriter:
        """A writer."""
        return ControlWriter(dict(self.options))


def main(settings: dict[str, Any]) -> int:
    """Run every query until its input is used up, or for ever; the first that fails ends all."""
    be_the_driver()
    die_with_parent()
    try:
        if "remote" in settings:
            return run_on_a_server(settings)
        spark = session(settings.get("master", "local[2]"))
        spark.dataSource.register(ControlDataSource)
        return run(spark, settings)
    except TwoPhaseError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code


def run_on_a_server(settings: dict[str, Any]) -> int:
    """Run every query, in a new session after each in which it has lost its server.

    Raises:
        PySparkException: something else is wrong.
        TwoPhaseError: a query was refused before it started.
    """
    while True:
        spark = SparkSession.builder.remote(settings["remote"]).getOrCreate()
        for key, value in settings.get("conf", {}).items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
        twophase.register(spark)
        try:
            return run(spark, settings)
        except PySparkException as error:
            if DIED_WHILE_IT_ANSWERED in str(error):
                spark.stop()  # or the next one would be this one
            if SparkSession.getActiveSession() is spark:
                raise
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()


def run(spark: SparkSession, settings: dict[str, Any]) -> int:
    """Run every query in a session, which ends with them.

    Raises:
        TwoPhaseError: a query was refused before it started.
    """
    queries = [start(spark, settings, name) for name in settings["jobs"]]
    while active := [query for query in queries if query.isActive]:
        with suppress(StreamingQueryException):
            active[0].awaitTermination(_POLL_S)
        if failed := [query for query in queries if query.exception() is not None]:
            text = str(failed[0].exception())
            error = errors.from_text(text)
            # Of a long log the tests see the end, and Java's frames are long.
            unnamed = f"{text}\n{text.partition(chr(10))[0]}\n"
            sys.stderr.write(f"{type(error).__name__}: {error}\n" if error else unnamed)
            sys.stderr.flush()
            os._exit(error.exit_code if error else 1)
    spark.stop()
    return 0


def start(spark: SparkSession, settings: dict[str, Any], name: str) -> StreamingQuery:
    """One query that has got over its start, which is tried again where Spark gave up
    on a busy machine.
    """
    for _ in range(_STARTS):
        query = begin(spark, settings, name)
        # Spark waits ten seconds for the Python process of a source, which is not enough for many
        # at once on a busy machine.
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(_STARTING_POLL_S)
        if _TOO_BUSY not in str(query.exception()):
            break
    return query


def begin(spark: SparkSession, settings: dict[str, Any], name: str) -> StreamingQuery:
    """Start one query, as a user would write it."""
    job = settings["jobs"][name]
    if job["format"] == WRITE_STREAM:
        twophase.write_stream(read(spark, settings), name=name)
    trigger = {"processingTime": "0 seconds"} if settings.get("forever") else {"availableNow": True}
    return (
        read(spark, settings)
        .writeStream.format(job["format"])
        .option("name", name)
        .option("checkpointLocation", f"{settings['location']}/{name}")
        .options(**job["options"])
        .trigger(**trigger)
        .start()
    )


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
