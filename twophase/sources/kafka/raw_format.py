"""Decodes records as they are: key, value, topic, partition, offset, timestamp, headers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import BadRecordError, ConfigError
from twophase.internals.arrow_values import binaries, booleans, integers, scalar, texts
from twophase.sources.kafka.block import NO_TIMESTAMP, Block, Wanted
from twophase.sources.kafka.offsets import WHERE, OffsetRange

MAX_ROWS = 20_000
MAX_BYTES = 8 * 1024 * 1024
TIMESTAMP = pa.timestamp("us", tz="UTC")
_MOST_MS = (2**63 - 1) // 1000
DDL = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "headers": _HEADERS,
}


def ddl(columns: tuple[str, ...]) -> str:
    """Return the DDL schema of some columns, as Spark expects it."""
    return ", ".join(f"{name} {DDL[name]}" for name in columns)


class RawDecoder:
    """Turns blocks into record batches.

    Args:
        schema: the Arrow schema of the rows; names and types are those of `DDL`.
        item: the range that the blocks belong to.

    Attributes:
        wanted: the parts of the records that the blocks must have.

    Raises:
        ConfigError: the schema has another column, or another type.
    """

    def __init__(self, schema: pa.Schema, item: OffsetRange) -> None:
        for field in schema:
            if field.type != _TYPES.get(field.name):
                raise ConfigError(
                    f"{WHERE}: the schema has {field.name!r} of type {field.type}, which is not a "
                    "column of value.format=raw.",
                    remedy="leave .schema() out and name the columns in `columns`, "
                    f"or use {ddl(tuple(DDL))}.",
                )
        self.wanted = Wanted(
            keys="key" in schema.names,
            timestamps="timestamp" in schema.names,
            headers="headers" in schema.names,
        )
        self._schema = schema
        self._columns = [COLUMNS[name] for name in schema.names]
        self._item = item
        self._pieces: list[list[pa.Array]] = []
        self._rows = self._bytes = 0

    @property
    def full(self) -> bool:
        """True if there are enough records for a batch."""
        return self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES

    def take(self, block: Block) -> None:
        """Add records."""
        arrays = [make(block, self._item) for make in self._columns]
        self._pieces.append(arrays)
        self._rows += len(block)
        self._bytes += sum(array.nbytes for array in arrays)

    def batch(self) -> pa.RecordBatch:
        """Return all rows since the last batch."""
        pieces, self._pieces = self._pieces, []
        self._rows = self._bytes = 0
        empty = [pa.nulls(0, field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(
            [pa.concat_arrays(parts) for parts in zip(empty, *pieces, strict=True)],
            schema=self._schema,
        )

    def notes(self) -> list[str]:
        """Return no warnings: every record fits."""
        return []


def timestamps(block: Block, item: OffsetRange) -> pa.Array:
    """Return the timestamps of the records; null for `NO_TIMESTAMP`. Other times before 1970 are
    times: Java's producer refuses them, but brokers and other clients do not.

    Raises:
        BadRecordError: one is beyond those that Spark has.
    """
    milliseconds = integers(block.timestamps_ms)
    least, most = pc.min(milliseconds).as_py(), pc.max(milliseconds).as_py()
    if most > _MOST_MS or least < -_MOST_MS:
        number, at = next((n, ms) for n, ms in enumerate(block.timestamps_ms) if abs(ms) > _MOST_MS)
        raise BadRecordError(
            f"Source {item.source!r}: the record at offset {block.offsets[number]} of {item.key} "
            f"has the timestamp {at}: so many milliseconds are beyond a TIMESTAMP.",
            remedy="let the producer give milliseconds since 1970; to read what is there, leave "
            "the column out: timestamp of `columns`, or kafka_timestamp of the schema.",
        )
    if least < 0:
        none = pa.nulls(1, milliseconds.type)[0]
        is_one = pc.not_equal(milliseconds, scalar(NO_TIMESTAMP))
        milliseconds = pc.if_else(is_one, milliseconds, none)
    return milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)


def keys(block: Block, _: OffsetRange) -> pa.Array:
    """Return the keys of the records."""
    return binaries(block.keys)


def topics(block: Block, item: OffsetRange) -> pa.Array:
    """Return the topic, once for each record."""
    return pa.repeat(scalar(item.topic), len(block))


def partitions(block: Block, item: OffsetRange) -> pa.Array:
    """Return the partition, once for each record."""
    return pa.repeat(integers([item.partition], pa.int32())[0], len(block))


def offsets(block: Block, _: OffsetRange) -> pa.Array:
    """Return the offsets of the records."""
    return integers(block.offsets)


def _values(block: Block, _: OffsetRange) -> pa.Array:
    return binaries(block.values)


def _headers(block: Block, _: OffsetRange) -> pa.Array:
    headers = [header for item in block.headers for header in item or ()]
    ends = itertools.accumulate((len(item or ()) for item in block.headers), initial=0)
    pairs = [texts([key for key, _ in headers]), binaries([value for _, value in headers])]
    listed = pa.StructArray.from_arrays(pairs, fields=list(_HEADERS.value_type))
    none = booleans(not item for item in block.headers)
    return pa.ListArray.from_arrays(integers(ends, pa.int32()), listed, type=_HEADERS, mask=none)


Column = Callable[[Block, OffsetRange], pa.Array]

COLUMNS: dict[str, Column] = {
    "key": keys,
    "value": _values,
    "topic": topics,
    "partition": partitions,
    "offset": offsets,
    "timestamp": timestamps,
    "headers": _headers,
}
