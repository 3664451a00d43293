"""What the reader makes of Spark's limits, and of its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from harness.spark_features import needs
from tests.sources.kafka.memory_cluster import Clock, Log, MemoryCluster
from twophase.errors import BadRecordError
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.data_source import KafkaStreamReader
from twophase.sources.kafka.offsets import Limits, OffsetRange, SourceOffset
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.planner import OffsetPlanner
from twophase.spark_versions import LIMITED_READS, ReadAllAvailable

pytestmark = needs(LIMITED_READS)

ROWS = StructType([StructField("value", StringType())])
RAW = StructType([StructField("value", BinaryType())])
BOTH = {"maxRecordsPerTrigger": "400", "maxRecordsPerPartition": "300"}


def reader_of(options: dict[str, str]) -> KafkaStreamReader:
    base = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "columns": "value"}
    schema = ROWS if "value.format" in options else RAW
    return KafkaStreamReader(KafkaOptions.parse(base | options), schema)


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


@pytest.mark.parametrize(("on_error", "on_tombstone"), [("fail", "drop"), ("drop", "fail")])
def test_bad_records_and_tombstones_have_an_option_each(on_error: str, on_tombstone: str) -> None:
    json = {"value.format": "json", "json.on_error": on_error, "json.on_tombstone": on_tombstone}
    dropped, refused = (b"x", None) if on_error == "drop" else (None, b"x")
    decoder = reader_of(json)._ranges.decoder(OffsetRange("kafka", "t", "id", 0, 0, 2))
    decoder.take(Block([dropped], range(1)))
    assert decoder.batch().num_rows == 0
    decoder.take(Block([refused], range(1, 2)))
    with pytest.raises(BadRecordError, match="at offset 1 "):
        decoder.batch()


def test_the_page_s_way_to_read_a_registry_s_json_loses_nothing_silently() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text()
    [block] = re.findall(r"```yaml\n(value\.format: json\njson\.skip_bytes.*?)```", page, re.DOTALL)
    decoder = reader_of(yaml.safe_load(block))._ranges.decoder(
        OffsetRange("kafka", "t", "id", 0, 0, 2)
    )
    for value in (b'{"value":1}{}', b'{"value":1,"value":2}', b'{"value":1} x'):
        decoder.take(Block([b"\0\0\0\0\7{}", b"\0\0\0\0\7" + value], range(2)))
        with pytest.raises(BadRecordError, match="at offset 1 "):
            decoder.batch()
