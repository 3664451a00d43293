"""A job over Spark's own Kafka source: goes on by its offsets, commits those of its group, and
writes a lost checkpoint again.

python -m integration.kafka.spark_kafka_driver SERVERS TOPIC GROUP FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import twophase
from harness.folder_sink import FolderSink, FolderTarget
from harness.memory_driver import NOTE
from integration.kafka.topics import Topics
from integration.repair.test_rewrite import ALL, Job
from twophase.errors import SourceLossError, StopJobError
from twophase.operations.repair.accept_loss import LossRepair
from twophase.spark.job.stream_writer import StreamWriter


class SparkKafkaJob(Job):
    """The job of the rewrite's tests, from Spark's source."""

    group = ""

    def describe(self) -> StreamWriter:
        frame = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.topics.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("group.id", self.group)
            .load()
            .selectExpr("cast(cast(value as string) as long) as id")
        )
        return (
            twophase.write_stream(frame, name="orders")
            .sink("facts", FolderSink(self.root / "facts"))
            .sink("lake", FolderSink(self.root / "lake"))
            .options(**{"checkpointLocation": str(self.root / "job"), "restart.strategy": "none"})
            .trigger(availableNow=True)
        )


class ShrinkingJob(SparkKafkaJob):
    """The same with options of the source."""

    def __init__(self, spark: SparkSession, topics: Topics, root: Path, name: str) -> None:
        super().__init__(spark, topics, root / name, topics.create(2, f"{root.name}-{name}"))
        self.options: dict[str, str] = {}

    def describe(self) -> StreamWriter:
        frame = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.topics.servers)
            .option("startingOffsets", "earliest")
            .options(**self.options)
            .load()
            .selectExpr("cast(cast(value as string) as long) as id")
        )
        return (
            twophase.write_stream(frame, name="orders")
            .sink("facts", FolderSink(self.root / "facts"))
            .option("checkpointLocation", str(self.root / "job"))
            # Spark 4.1 fails once behind a micro-batch that it has planned before.
            .options(**{"restart.strategy": "fixed", "restart.attempts": 1})
            .trigger(availableNow=True)
        )

    def shrink(
        self, before: dict[str, str], after: dict[str, str], expired: int = 0
    ) -> dict[str, object]:
        """Partition 1 is no longer assigned, or another topic no longer subscribed, or the first
        records of partition 0 expire: what the job says, and what it has when it was told to go on.
        """
        self.options = before
        self.produce(0)
        self.run()
        self.produce(20)
        self.topics.cut(self.topic, expired)
        self.options = after
        try:
            self.run()
        except SourceLossError as error:
            said = str(error)
        self.options = after | {"failOnDataLoss": "false"}
        self.run()
        self.options = after
        self.produce(40)
        self.run()
        return {"said": said, "ids": self.ids("facts")}


def shrunk(spark: SparkSession, topics: Topics, folder: Path) -> dict[str, object]:
    """Return what becomes of jobs that read less than before."""
    assign, left, expired = (
        ShrinkingJob(spark, topics, folder, name) for name in ("assign", "left", "expired")
    )
    other = topics.create(1, f"{folder.name}-other")
    topics.send(other, [b"7"])
    both = json.dumps({assign.topic: [0, 1]})
    return {
        "assign": assign.shrink({"assign": both}, {"assign": json.dumps({assign.topic: [0]})}),
        "left": left.shrink({"subscribe": f"{left.topic},{other}"}, {"subscribe": left.topic}),
        "expired": expired.shrink({"subscribe": expired.topic}, {"subscribe": expired.topic}, 30),
    }


def given_up(spark: SparkSession, topics: Topics, folder: Path) -> dict[str, object]:
    """A piece of the first micro-batch is lost: return what a rewrite says, and what the job has
    when its rows were given up, as that says.
    """
    topic = topics.create(2, f"{folder.name}-begun")
    job = SparkKafkaJob(spark, topics, folder / "begun", topic)
    job.group = f"{topic}-group"
    job.produce(0)
    job.decide()
    job.lose(0)
    try:
        job.rewrite(0)
    except StopJobError as error:
        said = str(error)
    with job.repairing() as repairing:
        loss = LossRepair(repairing._context)
        loss.accept(loss.plan(0, "facts"), NOTE)
    job.produce(20)
    job.run()
    return {"said": said, "facts": job.ids("facts"), "lake": job.ids("lake")}


def main(servers: str, topic: str, group: str, folder: str) -> None:
    """Print what has become of the job as JSON."""
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with Topics(servers) as topics:
        job = SparkKafkaJob(spark, topics, Path(folder), topic)
        job.group = group
        job.produce(0)
        first = job.describe().start()
        first.await_termination()
        lag = first.status.query.lag
        job.produce(40)
        job.decide()
        job.lose(*range(len(FolderTarget(job.root / "facts").prepared())))
        ranges = job.rewrite(1).ranges
        job.exact(sorted([*ALL, *range(40, 60), *range(140, 160)]))
        job.produce(60)
        job.decide()
        job.lose(0)
        try:
            job.rewrite(3)
        except StopJobError as error:
            refused = str(error)
        answer: dict[str, object] = {"lag": lag, "refused": refused, "ranges": [*ranges]}
        answer |= shrunk(spark, topics, Path(folder))
        answer["begun"] = given_up(spark, topics, Path(folder))
        print(json.dumps(answer))  # noqa: T201 the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
