"""Records that wait in a staging topic: some of them in one record of Kafka, as Arrow with length
and SHA-256 (I9).

A chunk has the name of its piece as its key, and its number within the piece: a copy finds out by
it whether it has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from twophase.internals.arrow_values import binaries, integers
from twophase.internals.record import check_version, frame, kind_of, unframe
from twophase.sinks.kafka.rows import KafkaRecord

_MAGIC, _MAGIC_OF_ONE_TOPIC = "twophase-kafka-rows/2", "twophase-kafka-rows/1"
"""Version 2 has the topics of its rows."""
CHUNK_BYTES = 512 << 10
"""The size of a chunk that has more than one row, at most."""
MOST_BYTES = 2 << 20
"""The largest chunk, which a staging topic has to take."""
_ROW_BYTES = 40
_NONE = -(2**63)
_NAMES = ("value", "key", "headers", "partition", "timestamp")
_TOPIC = "topic"
_HEADERS = list[tuple[str, bytes | None]]
_encode_headers = msgspec.json.Encoder().encode
_decode_headers = msgspec.json.Decoder(_HEADERS).decode


@dataclass
class Chunk:
    """Records of a piece, in order.

    Attributes:
        number: of the chunk within its piece, from 0.
        records: the records.
        size: about how many bytes they have.
    """

    number: int
    records: list[KafkaRecord]
    size: int = 0

    def has_room(self, record: KafkaRecord) -> bool:
        """Return whether it takes one more record; the first one it takes always."""
        return not self.records or self.size + _size_here(record) < CHUNK_BYTES

    def add(self, record: KafkaRecord) -> None:
        """Take one more record."""
        self.records.append(record)
        self.size += _size_here(record)

    def encoded(self) -> bytes:
        """Return the value of the record of Kafka."""
        records = self.records
        columns = [
            binaries([one.value for one in records]),
            binaries([one.key for one in records]),
            binaries([_encode_headers(one.headers) if one.headers else None for one in records]),
            integers(_NONE if one.partition is None else one.partition for one in records),
            integers(_NONE if one.timestamp_ms is None else one.timestamp_ms for one in records),
        ]
        batch = pa.RecordBatch.from_arrays(columns, names=list(_NAMES))
        magic = _MAGIC_OF_ONE_TOPIC
        if any(one.topic is not None for one in records):
            magic = _MAGIC
            topics = pa.array([one.topic for one in records], pa.string())
            batch = batch.append_column(_TOPIC, topics)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return frame(magic, str(self.number), sink.getvalue().to_pybytes())


def decoded(data: bytes, where: str) -> Chunk:
    """Return the chunk in the value of a record of Kafka.

    Args:
        data: the value.
        where: topic, partition and offset, for errors.

    Raises:
        DamagedRecordError: it is damaged.
        NewerFormatError: a newer version of twophase has written it.
    """
    kind, has_topics = kind_of(data), data.startswith(f"{_MAGIC} ".encode())
    magic = _MAGIC if has_topics else _MAGIC_OF_ONE_TOPIC
    check_version(_MAGIC, data, where)
    with pa.ipc.open_stream(unframe(magic, kind, data, where)) as stream:
        batch = stream.read_next_batch()
    columns = [column.to_pylist() for column in batch.columns]
    if not has_topics:
        columns.append([None] * batch.num_rows)
    return Chunk(int(kind), [*_records(columns)])


def size_of(record: KafkaRecord) -> int:
    """Return the bytes of a record's parts."""
    headers = sum(len(name) * 4 + len(value or b"") + 10 for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def _size_here(record: KafkaRecord) -> int:
    """Return about how many bytes a record has in a chunk."""
    return size_of(record) + _ROW_BYTES + len(record.topic or "")


def _records(columns: Sequence[Sequence[Any]]) -> Iterator[KafkaRecord]:
    for value, key, headers, partition, timestamp, topic in zip(*columns, strict=True):
        yield KafkaRecord(
            value,
            key,
            _decode_headers(headers) if headers else (),
            None if partition == _NONE else partition,
            None if timestamp == _NONE else timestamp,
            topic,
        )
