"""The sources keep their contract on a real broker, and over a log that Spark has written."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from harness.held_jobs import wait_until
from harness.spark_features import needs
from integration.kafka.topics import Topics, numbers
from tests.sources.kafka.test_source import starting_of
from twophase.contract.source import Source, SourceLeg
from twophase.sources.kafka import KafkaDataSource, KafkaSource
from twophase.sources.kafka.engines import cluster_of
from twophase.sources.kafka.offsets import SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.spark_files import SparkFileSource
from twophase.sources.spark_kafka import SparkKafkaSource
from twophase.spark.plan import logical_plan
from twophase.spark_versions import LIMITED_READS, ReadAllAvailable
from twophase.testing.contract import (
    NotifyingSourceContract,
    ReadsInTasksContract,
    ReleasesTopicsContract,
    RereadsRangesContract,
    SourceContract,
    SourceHarness,
)

pytestmark = [pytest.mark.part("kafka"), needs(LIMITED_READS)]

ROOT = Path(__file__).parents[2]
_groups = itertools.count()


class TopicHarness(SourceHarness):
    """A topic of two partitions."""

    def __init__(self, topics: Topics, source: Source, name: str) -> None:
        self.topics = topics
        self.topic = topics.create(2)
        self.group = f"contract-{next(_groups)}"
        self.source = source
        self.sent = 0
        self.leg = SourceLeg(
            name,
            {
                "kafka.bootstrap.servers": topics.servers,
                "subscribe": self.topic,
                "group.id": self.group,
            },
        )

    def send(self) -> None:
        for partition in range(2):
            self.topics.send(self.topic, numbers(self.sent, self.sent + 10), partition)
        self.sent += 10

    def progress(self) -> object:
        return self.topics.committed(self.group) or None


class KafkaHarness(TopicHarness):
    columns = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])

    def __init__(self, topics: Topics) -> None:
        super().__init__(topics, KafkaSource(), "twophase-kafka")
        self.topic_names = (self.topic,)
        schema = StructType([StructField("value", BinaryType())])
        options = {**self.leg.options, "columns": "value"}
        self._reader = KafkaDataSource(options).streamReader(schema)
        self._at = self._reader.initialOffset()

    def append(self) -> str:
        self.send()
        self._at = self._reader.latestOffset(self._at, ReadAllAvailable())
        return json.dumps(self._at)

    def starting(self, line: str) -> str:
        return starting_of(line)

    def loosen(self) -> bool:
        self.topics.alter(self.topic, {"cleanup.policy": "compact"})
        cluster = cluster_of(KafkaOptions.parse(self.leg.options))

        def is_compacted() -> bool:
            return "compact" in cluster.cleanup_policies([self.topic])[self.topic]

        wait_until(is_compacted, "the broker to know the topic's policy")
        return True

    def drop(self) -> None:
        self.topics.delete(self.topic)

    def written(self) -> list[dict[str, Any]]:
        return [
            {"partition": partition, "offset": number, "value": b"%d" % number}
            for partition in range(2)
            for number in range(self.sent)
        ]

    def lose(self, line: str) -> None:
        for entry in SourceOffset.parse(line).partitions or ():
            self.topics.cut(self.topic, entry.offset, entry.partition)


class SparkKafkaHarness(TopicHarness):
    def __init__(self, topics: Topics) -> None:
        super().__init__(topics, SparkKafkaSource(), "kafka")

    def starting(self, line: str) -> str:
        return line

    def append(self) -> str:
        self.send()
        ends = {str(partition): self.sent for partition in range(2)}
        return json.dumps({self.topic: ends}, separators=(",", ":"))

    def lose(self, line: str) -> None:
        for partition, at in json.loads(line)[self.topic].items():
            self.topics.cut(self.topic, at, int(partition))


class TestKafkaSource(
    SourceContract,
    NotifyingSourceContract,
    RereadsRangesContract,
    ReadsInTasksContract,
    ReleasesTopicsContract,
):
    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics)


class TestSparkKafkaSource(SourceContract, NotifyingSourceContract, RereadsRangesContract):
    @pytest.fixture
    def harness(self, topics: Topics) -> SparkKafkaHarness:
        return SparkKafkaHarness(topics)


class FileHarness(SourceHarness):
    """A folder that a query of Spark reads, one file in each micro-batch."""

    log: Path

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.folder, self._checkpoints = root / "in 100%", root / "checkpoints"
        self.folder.mkdir()
        self._frame = spark.readStream.format("text").load(str(self.folder))
        self.source = SparkFileSource()
        [self.leg] = logical_plan.sources(self._frame)
        self.log = self._checkpoints / "sources" / "0"
        self._added = 0

    def append(self) -> str:
        (self.folder / f"a {self._added}.txt").write_text("7")
        self._added += 1
        query = self._frame.writeStream.format("noop")
        query = query.option("checkpointLocation", str(self._checkpoints))
        query.trigger(availableNow=True).start().awaitTermination()
        offsets = self._checkpoints / "offsets"
        newest = max(int(path.name) for path in offsets.iterdir() if path.name.isdecimal())
        return (offsets / str(newest)).read_text().splitlines()[2]

    def lose(self, line: str) -> None:
        for number in range(json.loads(line)["logOffset"] + 1):
            (self.folder / f"a {number}.txt").unlink()


class TestSparkFileSource(SourceContract):
    @pytest.fixture
    def harness(self, spark: SparkSession, tmp_path: Path) -> FileHarness:
        return FileHarness(spark, tmp_path)
