"""A job over a union of Spark's own Kafka sources, whose program is written the other way round.

python -m integration.kafka.spark_kafka_places_driver SERVERS TOPIC OTHER FOLDER
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import twophase
from harness.folder_sink import FolderSink, FolderTarget
from integration.kafka.topics import Topics
from twophase.errors import TwoPhaseError


class UnionJob:
    """The job."""

    def __init__(self, spark: SparkSession, topics: Topics, root: Path) -> None:
        self._spark = spark
        self._topics = topics
        self._root = root
        self._sent = 0

    def send(self, *names: str) -> None:
        """Send ten numbers to each topic."""
        for name in names:
            numbers = range(self._sent, self._sent + 10)
            self._topics.send(name, [b"%d" % number for number in numbers])
            self._sent += 10

    def run(self, *names: str) -> str:
        """Process what is there, from the topics in this order; return what the job says if it is
        refused.
        """
        frame = reduce(DataFrame.union, map(self._frame, names))
        writer = twophase.write_stream(frame, name="orders")
        writer.sink("facts", FolderSink(self._root / "facts"))
        writer.options(
            **{"checkpointLocation": str(self._root / "job"), "restart.strategy": "none"}
        )
        try:
            writer.trigger(availableNow=True).start().await_termination()
        except TwoPhaseError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in FolderTarget(self._root / "facts").rows())

    def _frame(self, name: str) -> DataFrame:
        reader = self._spark.readStream.format("kafka").option("subscribe", name)
        reader = reader.option("kafka.bootstrap.servers", self._topics.servers)
        rows = reader.option("startingOffsets", "earliest").load()
        return rows.selectExpr("cast(cast(value as string) as long) as id")


def main(servers: str, topic: str, other: str, folder: str) -> None:
    """Print what the job says, and what it has then, as JSON."""
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with Topics(servers) as topics:
        job = UnionJob(spark, topics, Path(folder))
        job.send(topic, other)
        said = [job.run(topic, other)]
        job.send(topic, other)
        said += [job.run(other, topic), job.run(topic, other), job.run(f"{topic},{other}", other)]
        print(json.dumps({"said": said, "ids": job.ids()}))  # noqa: T201 the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
