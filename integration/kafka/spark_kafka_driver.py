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
from integration.kafka.topics import Topics
from integration.repair.test_rewrite import ALL, Job
from twophase.errors import StopJobError
from twophase.runtime.stream_writer import StreamWriter
from twophase.testing.folder import FolderSink, FolderTarget


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
        job.run()
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
        print(json.dumps({"refused": refused, "ranges": [*ranges]}))  # noqa: T201 the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
