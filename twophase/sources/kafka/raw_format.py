"""Records as they are: key, value, topic, partition, offset, timestamp, headers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from twophase.errors import ConfigError
from twophase.sources.kafka.chunk import Chunk, Wanted
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import WHERE

DDL = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "headers": _HEADERS,
}


def ddl(columns: tuple[str, ...]) -> str:
    """The schema of some columns, as Spark wants it."""
    return ", ".join(f"{name} {DDL[name]}" for name in columns)


class RawDecoder:
    """Turns chunks into record batches.

    Args:
        schema: the Arrow schema of the rows; names and types are those of `DDL`.
        item: the range that the chunks are of.

    Raises:
        ConfigError: the schema has another column, or another type.
    """

    def __init__(self, schema: pa.Schema, item: OffsetRange) -> None:
        for field in schema:
            if field.type != TYPES.get(field.name):
                raise ConfigError(
                    f"{WHERE}: the schema has {field.name!r} of type {field.type}, not a raw column.",
                    remedy=f"leave .schema() out and choose with `columns`, or use {ddl(tuple(DDL))}.",
                )
        self._schema = schema
        self._columns = [_COLUMNS[name] for name in schema.names]
        self._item = item
        self.wanted = Wanted(
            keys="key" in schema.names, timestamps="timestamp" in schema.names, headers="headers" in schema.names
        )

    def notes(self) -> list[str]:
        """What the operator should know of the chunks so far: nothing."""
        return []

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """One row a record."""
        arrays = [
            make(chunk, self._item).cast(field.type) for make, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def timestamps(chunk: Chunk, _: OffsetRange) -> pa.Array:
    """The timestamps of the records; null where the broker has none."""
    milliseconds = pa.array(chunk.timestamps_ms, pa.int64())
    known = pa.compute.greater_equal(milliseconds, 0)
    return pa.compute.if_else(known, milliseconds, None).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)


def keys(chunk: Chunk, _: OffsetRange) -> pa.Array:
    """The keys of the records."""
    return pa.array(chunk.keys, pa.binary())


def topics(chunk: Chunk, item: OffsetRange) -> pa.Array:
    """The topic, once for each record."""
    return pa.repeat(pa.scalar(item.topic, pa.string()), len(chunk))


def partitions(chunk: Chunk, item: OffsetRange) -> pa.Array:
    """The partition, once for each record."""
    return pa.repeat(pa.scalar(item.partition, pa.int32()), len(chunk))


def offsets(chunk: Chunk, _: OffsetRange) -> pa.Array:
    """The offsets of the records."""
    return pa.array(chunk.offsets(), pa.int64())


def _values(chunk: Chunk, _: OffsetRange) -> pa.Array:
    return pa.array(chunk.values, pa.binary())


def _headers(chunk: Chunk, _: OffsetRange) -> pa.Array:
    listed = [[{"key": key, "value": value} for key, value in item] if item else None for item in chunk.headers]
    return pa.array(listed, _HEADERS)


Column = Callable[[Chunk, OffsetRange], pa.Array]

_COLUMNS: dict[str, Column] = {
    "key": keys,
    "value": _values,
    "topic": topics,
    "partition": partitions,
    "offset": offsets,
    "timestamp": timestamps,
    "headers": _headers,
}
