"""Fetches a range with kafka-python: needs nothing compiled."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors

from twophase.errors import PreflightError
from twophase.sources.kafka import connection
from twophase.sources.kafka.chunk import Chunk, Wanted, run_of
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions

_BLOCK = 5_000
_POLL_MS = 50


def fetch(options: KafkaOptions, item: OffsetRange, wanted: Wanted, guard: ReadGuard) -> Iterator[Chunk]:
    """Yield the records of a range in order, in bounded chunks, until the position has reached its end.

    Raises:
        SourceLossError: records of the range are gone.
        SourceUnavailableError: the read stands still.
    """
    consumer = KafkaConsumer(**settings(options))
    partition = TopicPartition(item.topic, item.partition)
    try:
        consumer.assign([partition])
        consumer.seek(partition, item.start)
        position, chunk = item.start, Chunk()
        while position < item.end:
            records = _poll(consumer, partition, position, guard)
            reached = consumer.position(partition)
            if reached is None or reached <= position:
                guard.waited(position)
                continue
            guard.moved()
            position = reached  # beyond the last record where markers or aborted records follow it
            if records and records[-1].offset >= item.end:
                records = [record for record in records if record.offset < item.end]
            _collect(chunk, records, wanted)
            if chunk.full:
                yield chunk
                chunk = Chunk()
        if len(chunk):
            yield chunk
    finally:
        consumer.close(autocommit=False)


def settings(options: KafkaOptions) -> dict[str, Any]:
    """What the consumer is told, connection included."""
    return connection.for_kafka_python(options) | {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "isolation_level": options.isolation_level.value,
        # Without the C library the checksum alone would take ten times as long as all the rest.
        "check_crcs": importlib.util.find_spec("crc32c") is not None,
        "fetch_max_wait_ms": 50,
        "metrics_enabled": False,
    }


def _poll(consumer: Any, partition: TopicPartition, position: int, guard: ReadGuard) -> list[Any]:
    try:
        return consumer.poll(_POLL_MS, max_records=_BLOCK).get(partition, [])  # type: ignore[no-any-return]
    except kafka_errors.AuthorizationError as error:
        raise PreflightError(f"Kafka refuses to be read: {error}.", remedy="check user, password and ACLs.") from None
    except kafka_errors.KafkaError as error:
        guard.troubled(position, str(error))
        return []


def _collect(chunk: Chunk, records: list[Any], wanted: Wanted) -> None:
    if not records:
        return
    run = run_of(records[0].offset, records[-1].offset, len(records))
    chunk.runs.append(run if run is not None else [record.offset for record in records])
    chunk.values += [record.value for record in records]
    chunk.size_bytes += sum(max(0, record.serialized_value_size) for record in records)
    if wanted.keys:
        chunk.keys += [record.key for record in records]
    if wanted.timestamps:
        chunk.timestamps_ms += [record.timestamp for record in records]
    if wanted.headers:
        chunk.headers += [record.headers for record in records]
