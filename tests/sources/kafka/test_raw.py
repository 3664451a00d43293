"""Records as they are: every column, with what may be missing of each."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from harness.spark_features import needs
from twophase.errors import BadRecordError, ConfigError
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.data_source import KafkaDataSource
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import OnBadRecord
from twophase.sources.kafka.raw_format import DDL, RawDecoder
from twophase.spark_versions import LIMITED_READS

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
ITEM = OffsetRange("source", "orders-ä", "", 3, 0, 9)


def block(first: int) -> Block:
    return Block(
        [b"\x00\xff", None, b""],
        [first, first + 1, first + 5],
        [None, b"k", b""],
        [1_500, -1, 0],
        [[("a", b"1"), ("a", None)], [], None],
    )


def expected(first: int) -> list[dict[str, object]]:
    place = {"topic": "orders-ä", "partition": 3}
    first_ms, epoch = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), datetime(1970, 1, 1, tzinfo=UTC)
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    return [
        {
            "key": None,
            "value": b"\x00\xff",
            **place,
            "offset": first,
            "timestamp": first_ms,
            "headers": headers,
        },
        {
            "key": b"k",
            "value": None,
            **place,
            "offset": first + 1,
            "timestamp": None,
            "headers": None,
        },
        {
            "key": b"",
            "value": b"",
            **place,
            "offset": first + 5,
            "timestamp": epoch,
            "headers": None,
        },
    ]


def test_every_column_of_several_blocks() -> None:
    assert SCHEMA.names == list(DDL)
    decoder = RawDecoder(SCHEMA, ITEM)
    decoder.take(block(0))
    decoder.take(block(100))
    batch = decoder.batch()
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == expected(0) + expected(100)


FIRST_BEYOND_MS = 2**63 // 1000 + 1
"""In microseconds it takes more than 63 bits."""


def test_a_timestamp_beyond_spark_s_names_its_record_and_without_the_column_it_is_read() -> None:
    """As of producers that give microseconds or nanoseconds."""
    nanoseconds = Block([b"{}", b"{}"], [7, 9], [None] * 2, [1_500, 1_800_000_000 * 10**9])
    json_schema = pa.schema([("id", pa.int64()), ("kafka_timestamp", pa.timestamp("us", "UTC"))])

    def decoder(schema: pa.Schema) -> RawDecoder | JsonDecoder:
        is_raw = "offset" in schema.names
        return RawDecoder(schema, ITEM) if is_raw else JsonDecoder(schema, ITEM, OnBadRecord.FAIL)

    for schema in (SCHEMA.remove(6), json_schema):
        with pytest.raises(BadRecordError, match=r"offset 9 of .* 1800000000000000000") as caught:
            decoder(schema).take(nanoseconds)
        (column,) = [name for name in schema.names if name.endswith("timestamp")]
        assert "leave the column out" in caught.value.remedy
        assert column in caught.value.remedy
        without = decoder(schema.remove(schema.names.index(column)))
        without.take(nanoseconds)
        assert without.batch().num_rows == 2
    last = decoder(SCHEMA.remove(6))
    last.take(Block([b""], [0], [None], [FIRST_BEYOND_MS - 1]))
    assert last.batch()["timestamp"].cast(pa.int64()).to_pylist() == [(FIRST_BEYOND_MS - 1) * 1000]
    with pytest.raises(BadRecordError):
        last.take(Block([b""], [0], [None], [FIRST_BEYOND_MS]))


FIRST_DAY_MS = -62_135_596_800_000
"""The first of January of the year 1."""


@pytest.mark.parametrize("ms", [-2, -1_500, FIRST_DAY_MS, 1 - FIRST_BEYOND_MS])
def test_a_timestamp_before_1970_is_one(ms: int) -> None:
    decoder = RawDecoder(SCHEMA, ITEM)
    decoder.take(Block([b""] * 3, range(3), [None] * 3, [ms, -1, 0], [None] * 3))
    found = decoder.batch()["timestamp"].cast(pa.int64())
    assert found.to_pylist() == [ms * 1000, None, 0]


def test_a_timestamp_before_spark_s_names_its_record() -> None:
    with pytest.raises(BadRecordError, match=f"offset 1 of .* timestamp -{FIRST_BEYOND_MS}"):
        RawDecoder(SCHEMA, ITEM).take(
            Block([b""] * 2, range(2), [None] * 2, [5, -FIRST_BEYOND_MS], [None] * 2)
        )


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@needs(LIMITED_READS)
def test_a_schema_of_other_columns_is_refused_with_the_one_to_give() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    source = KafkaDataSource(options)
    for other in ("value STRING", "id BIGINT", "offset INT"):
        with pytest.raises(ConfigError, match=r"not a column of value\.format=raw") as caught:
            source.streamReader(parsed(other))
    way = re.fullmatch(
        r"leave \.schema\(\) out and name the columns in `columns`, or use (.*)\.",
        caught.value.remedy,
    )
    assert way is not None
    source.streamReader(parsed(way[1]))
    named = KafkaDataSource(options | {"columns": "value,offset"})
    assert parsed(named.schema()).names == ["value", "offset"]
    named.streamReader(parsed(named.schema()))


def parsed(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def test_no_block_is_an_empty_batch() -> None:
    batch = RawDecoder(SCHEMA, ITEM).batch()
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)
