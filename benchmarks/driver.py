"""The process that runs one pipeline from Kafka to the end of the topic, and prints how
long each batch took.

    python -m benchmarks.driver '{"pipeline": "twophase", ...}'

All pipelines are measured in the same way: by the `triggerExecution` that Spark reports for each
micro-batch, which is everything from asking for offsets to the commit log. The result is the last
line of the output, as JSON.

    twophase          twophase-kafka, JSON parsed by the source, MySqlSink: exactly once
    twophase-plugin   the same source and sink by writeStream.format("twophase-mysql"): exactly once
    spark             Spark's Kafka connector, from_json, JDBC append in foreachBatch: at least once
    twophase-delta    twophase-kafka, DeltaSink: exactly once
    spark-delta       twophase-kafka, Delta's own streaming sink: exactly once
    spark-files       twophase-kafka, Spark's own file sink with parquet: exactly once for
                      readers of its own log
    spark-kafka-files   Spark's Kafka connector, from_json, Spark's own file sink with parquet:
                        exactly once for readers of its own log
    spark-kafka-iceberg   Spark's Kafka connector, from_json, Iceberg's own streaming sink: exactly
                          once
    spark-kafka-kafka   Spark's Kafka connector, from_json, to_json, Spark's own Kafka sink: at
                        least once
    several           twophase-kafka, the sinks that the settings name, in one
                      checkpoint: exactly once
    several-by-spark  the same with Spark's Kafka connector and from_json
    read              twophase-kafka, raw or JSON, to Spark's noop sink
    spark-read        Spark's Kafka connector, the same
    load-data         no Spark: LOAD DATA LOCAL of files that are there already
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

import twophase
from benchmarks.iceberg_tables import new_table
from benchmarks.load_data import load_all
from benchmarks.orders import SCHEMA, TABLE
from twophase.contract.sink import Sink
from twophase.events import CheckpointCommitted, CheckpointDecided, Event, SinkAcknowledged
from twophase.sinks.delta.sink import DeltaSink
from twophase.sinks.file.sink import FileSink
from twophase.sinks.hive.sink import HiveSink
from twophase.sinks.kafka.sink import KafkaSink
from twophase.sinks.mysql.sink import MySqlSink

MYSQL, DELTA, HIVE, ICEBERG, FILES = "facts", "lake", "hive", "iceberg", "files"
TRANSACTION, STAGED = "transaction", "staged"
"""Return the names of a pipeline's sinks."""

TURN_OVER = "It is somebody else's turn."
"""The line that a driver prints when it has run its batches; it goes on when it reads a line."""

_LOOK_S = 0.5
_JDBC_FLAGS = "rewriteBatchedStatements=true&sslMode=DISABLED&allowPublicKeyRetrieval=true"


@dataclass
class Batch:
    """One micro-batch that read rows.

    Attributes:
        began: when it was triggered, as Spark writes times.
        duration_s: `triggerExecution`, minus the driver's wait for its turn.
        phases_ms: all that Spark reports, by name.
    """

    number: int
    rows: int
    began: str
    duration_s: float
    phases_ms: dict[str, int]


class _Turns:
    """Leaves the machine to others after every few micro-batches, until it is our turn again. An
    observer of events.

    Args:
        batches: the number of batches in a turn; None: we are alone.

    Attributes:
        waited_s: the wait within a micro-batch, by its number.
    """

    def __init__(self, batches: int | None) -> None:
        self.waited_s: dict[int, float] = {}
        self._batches = batches
        if batches:
            sys.stdin.readline()

    def __call__(self, event: Event) -> None:
        if (
            self._batches
            and isinstance(event, CheckpointCommitted)
            and (event.checkpoint + 1) % self._batches == 0
        ):
            began_s = time.monotonic()
            print(TURN_OVER, flush=True)
            sys.stdin.readline()
            self.waited_s[event.checkpoint] = time.monotonic() - began_s


class _Progress(StreamingQueryListener):
    """Notes micro-batches."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @cached_property
    def _jlistener(self) -> Any:
        jvm: Any = SparkContext._jvm
        return jvm.PythonStreamingQueryListenerWrapper(_AsJson(self))

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryProgress(self, event: Any) -> None:
        """Spark has finished a micro-batch; its report is a mapping here."""
        phases = event["durationMs"]
        if rows := event["numInputRows"]:
            duration_s = phases["triggerExecution"] / 1000
            self.batches.append(
                Batch(event["batchId"], rows, event["timestamp"], duration_s, phases)
            )

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to note."""


class _AsJson(JStreamingQueryListener):
    """Reads a report of progress as one JSON text.

    PySpark reads it field by field: a quarter of a processor second of the JVM for each micro-batch
    of whatever is measured, in JDK 17 with Spark's 280 jars. The end of each of Java's iterators is
    an exception whose kind it asks for twenty times, and each question searches all jars.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        """Spark has finished a micro-batch."""
        self.pylistener.onQueryProgress(json.loads(jevent.progress().json()))


class _Checkpoints:
    """Notes the durations of each checkpoint, in seconds from its trigger; an
    observer of events.
    """

    def __init__(self) -> None:
        self.done: list[dict[str, float]] = []
        self._now: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case SinkAcknowledged():
                self._now["acknowledged_s"] = event.duration_s
            case CheckpointDecided():
                self._now["decided_s"] = event.duration_s
            case CheckpointCommitted():
                self.done.append(
                    {**self._now, "committed_s": event.duration_s, "protocol_s": event.protocol_s}
                )
                self._now = {}
            case _:
                pass


def main(settings: dict[str, Any]) -> None:
    """Run the pipeline that `settings` names, and print its batches."""
    if settings["pipeline"] == "load-data":
        loaded = load_all(settings["mysql"], settings["files"])
        print(json.dumps({"batches": loaded, "checkpoints": []}))
        return
    turns = _Turns(settings.get("turn"))
    spark = _session(settings)
    progress = _Progress()
    spark.streams.addListener(progress)
    checkpoints = _Checkpoints()
    observers = (checkpoints, turns)
    match settings["pipeline"]:
        case "twophase":
            sinks = {MYSQL: _SINKS[MYSQL](settings)}
            _run_twophase(_read(spark, settings), settings, sinks, observers)
        case "twophase-plugin":
            _run_plugin(spark, settings)
        case "twophase-delta":
            sinks = {DELTA: _SINKS[DELTA](settings)}
            _run_twophase(_read(spark, settings), settings, sinks, observers)
        case "several" | "several-by-spark" as name:
            read = _read if name == "several" else _read_by_spark
            sinks = {name: _SINKS[name](settings) for name in settings["sinks"]}
            _run_twophase(read(spark, settings), settings, sinks, observers)
        case "read":
            _run_to_nothing(_read(spark, settings), settings)
        case "spark-read":
            _run_to_nothing(_read_by_spark(spark, settings), settings)
        case "spark-delta":
            _run_delta(spark, settings)
        case "spark-files":
            _run_files(_read(spark, settings), settings)
        case "spark-kafka-iceberg":
            _run_iceberg(_read_by_spark(spark, settings), settings)
        case "spark-kafka-kafka":
            _run_kafka(_read_by_spark(spark, settings), settings)
        case "spark-kafka-files":
            _run_files(_read_by_spark(spark, settings), settings)
        case _:
            _run_spark(spark, settings)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    spark.stop()
    for batch in progress.batches:
        batch.duration_s -= turns.waited_s.get(batch.number, 0.0)
    result = {
        "batches": [dataclasses.asdict(batch) for batch in progress.batches],
        "checkpoints": checkpoints.done,
    }
    print(json.dumps(result))


def _session(settings: dict[str, Any]) -> SparkSession:
    builder = (
        SparkSession.builder.master(settings["master"])
        .appName(settings["pipeline"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    for key, value in settings.get("spark", {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _mysql_options(settings: dict[str, Any]) -> dict[str, Any]:
    mysql = settings["mysql"]
    url = f"mysql://{mysql['user']}@{mysql['host']}:{mysql['port']}/{mysql['database']}"
    return {
        "url": url,
        "table": TABLE,
        "password_env": mysql["password_env"],
        **settings.get("sink", {}),
    }


_SINKS: dict[str, Callable[[dict[str, Any]], Sink]] = {
    MYSQL: lambda settings: MySqlSink(**_mysql_options(settings)),
    DELTA: lambda settings: DeltaSink(path=settings["path"], create=True),
    HIVE: lambda _: HiveSink(table=TABLE, create=True),
    FILES: lambda settings: FileSink(path=settings["path"]),
    ICEBERG: lambda settings: new_table(Path(settings["path"])),
    TRANSACTION: lambda settings: _kafka_sink(settings, TRANSACTION),
    STAGED: lambda settings: _kafka_sink(settings, STAGED),
}


def _kafka_sink(settings: dict[str, Any], protocol: str) -> KafkaSink:
    servers = {"kafka.bootstrap.servers": settings["kafka"]}
    return KafkaSink(**servers, topic=settings["to"], protocol=protocol)


def _schema(settings: dict[str, Any]) -> str:
    return str(settings.get("schema", SCHEMA))


def _read(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    twophase.register(spark)
    options = {
        "kafka.bootstrap.servers": settings["kafka"],
        "subscribe": settings["topic"],
        "maxRecordsPerTrigger": str(settings["batch_records"]),
        **settings.get("source", {}),
    }
    reader = spark.readStream.format("twophase-kafka").options(**options)
    if not settings.get("raw"):
        reader = reader.option("value.format", "json").schema(_schema(settings))
    return reader.load()


def _run_twophase(
    frame: DataFrame,
    settings: dict[str, Any],
    sinks: dict[str, Sink],
    observers: Iterable[Callable[[Event], None]],
) -> None:
    described = twophase.write_stream(frame, name="orders")
    for name, sink in sinks.items():
        described.sink(name, sink)
    for observer in observers:
        described.observer(observer)
    described.option("checkpointLocation", settings["location"])
    described.options(**settings.get("options", {}))
    if "until" not in settings:
        described.trigger(availableNow=True).start().await_termination()
        return
    job = described.start()
    while job.status.query.records < settings["until"] and job.is_active:
        time.sleep(_LOOK_S)
    job.stop()
    job.await_termination()


def _run_plugin(spark: SparkSession, settings: dict[str, Any]) -> None:
    writer = (
        _read(spark, settings)
        .writeStream.format("twophase-mysql")
        .options(**_mysql_options(settings))
    )
    writer = writer.option("name", "orders").option("checkpointLocation", settings["location"])
    writer.trigger(availableNow=True).start().awaitTermination()


def _run_delta(spark: SparkSession, settings: dict[str, Any]) -> None:
    writer = (
        _read(spark, settings)
        .writeStream.format("delta")
        .option("checkpointLocation", settings["location"])
    )
    writer.trigger(availableNow=True).start(settings["path"]).awaitTermination()


def _run_to_nothing(frame: DataFrame, settings: dict[str, Any]) -> None:
    writer = frame.writeStream.format("noop")
    writer = writer.option("checkpointLocation", settings["location"])
    writer.trigger(availableNow=True).start().awaitTermination()


def _run_files(frame: DataFrame, settings: dict[str, Any]) -> None:
    writer = frame.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", settings["location"])
    writer.trigger(availableNow=True).start(settings["path"]).awaitTermination()


def _run_iceberg(frame: DataFrame, settings: dict[str, Any]) -> None:
    table = settings["table"]
    frame.sparkSession.sql(f"CREATE TABLE {table} ({_schema(settings)}) USING iceberg")
    writer = frame.writeStream.format("iceberg")
    writer = writer.option("checkpointLocation", settings["location"])
    writer.trigger(availableNow=True).toTable(table).awaitTermination()


def _run_kafka(frame: DataFrame, settings: dict[str, Any]) -> None:
    values = frame.select(to_json(struct("*"), {"ignoreNullFields": "false"}).alias("value"))
    writer = values.writeStream.format("kafka").option("topic", settings["to"])
    writer = writer.option("kafka.bootstrap.servers", settings["kafka"])
    writer = writer.option("checkpointLocation", settings["location"])
    writer.trigger(availableNow=True).start().awaitTermination()


def _read_by_spark(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["kafka"])
        .option("subscribe", settings["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings["batch_records"])
        .load()
    )
    if settings.get("raw"):
        return records
    row = from_json(col("value").cast("string"), _schema(settings)).alias("row")
    return records.select(row).select("row.*")


def _run_spark(spark: SparkSession, settings: dict[str, Any]) -> None:
    mysql = settings["mysql"]
    jdbc = {
        "url": f"jdbc:mysql://{mysql['host']}:{mysql['port']}/{mysql['database']}?{_JDBC_FLAGS}",
        "driver": "com.mysql.cj.jdbc.Driver",
        "dbtable": TABLE,
        "user": mysql["user"],
        "password": os.environ[mysql["password_env"]],
        "batchsize": "10000",
        "isolationLevel": "READ_COMMITTED",
        **settings.get("jdbc", {}),
    }

    def write(batch: DataFrame, number: int) -> None:
        del number
        batch.write.format("jdbc").options(**jdbc).mode("append").save()

    query = (
        _read_by_spark(spark, settings)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", settings["location"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
