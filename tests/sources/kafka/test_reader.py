"""What the reader makes of Spark's limits."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.sources.kafka.memory_cluster import Clock, Log, MemoryCluster
from twophase.sources.kafka.data_source import KafkaStreamReader
from twophase.sources.kafka.offsets import Limits, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.planner import OffsetPlanner

RAW = StructType([StructField("value", BinaryType())])
BOTH = {"maxRecordsPerTrigger": "400", "maxRecordsPerPartition": "300"}


def reader_of(options: dict[str, str]) -> KafkaStreamReader:
    base = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "columns": "value"}
    return KafkaStreamReader(KafkaOptions.parse(base | options), RAW)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Limits(None, None)),
        ({"maxRecordsPerTrigger": "400"}, Limits(400, None)),
        ({"maxRecordsPerPartition": "300"}, Limits(None, 300)),
        (BOTH, Limits(400, 300)),
    ],
)
def test_a_trigger_that_leaves_it_to_the_options_has_their_limits(
    options: dict[str, str], expected: Limits
) -> None:
    reader = reader_of(options)
    assert reader._limits(reader.getDefaultReadLimit()) == expected


def test_a_trigger_that_wants_everything_has_no_limits() -> None:
    assert reader_of(BOTH)._limits(ReadAllAvailable()) == Limits(None, None)


def test_a_batch_ends_at_its_limits() -> None:
    reader = reader_of(BOTH)
    cluster = MemoryCluster({"t": ("id-1", [Log(0, 1000), Log(0, 1000)])})
    reader._planner = OffsetPlanner(reader._options, cluster, Clock())  # type: ignore[arg-type]
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    for line, offsets in ((first, [200, 200]), (second, [400, 400])):
        assert [entry.offset for entry in SourceOffset.parse(line).partitions or ()] == offsets
