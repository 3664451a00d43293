"""Fetches a range with kafka-python: needs nothing compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors

from twophase.kafka_client import connection
from twophase.kafka_client.access import RefusedError
from twophase.kafka_client.client import RIGHTS
from twophase.kafka_client.credentials import check_secrets
from twophase.sources.kafka.block import Block, Wanted
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions

_BLOCK = 1_000
_POLL_MS = 50
_NO_UTF8 = UnicodeDecodeError.__name__


def fetch(
    options: KafkaOptions, item: OffsetRange, wanted: Wanted, guard: ReadGuard
) -> Iterator[Block]:
    """Yield the records of a range in order until the position has reached its end.

    Raises:
        SourceLossError: records of the range are gone.
        BadRecordError: the name of a header is no text.
        SourceUnavailableError: the read makes no progress.
        RefusedError: a broker refuses the client.
        SecretError: a secret cannot be read.
    """
    try:
        consumer = Consumer(**settings(options))
    except RIGHTS as error:
        raise RefusedError(str(error)) from error
    except kafka_errors.KafkaError as error:
        check_secrets(options)
        guard.refused(str(error))
    partition = TopicPartition(item.topic, item.partition)
    try:
        consumer.assign([partition])
        consumer.seek(partition, item.start)
        position = item.start
        while position < item.end:
            records = _poll(consumer, partition, position, guard)
            reached = consumer.position(partition)
            if reached is None or reached <= position:
                guard.waited(position)
                continue
            guard.moved()
            position = reached  # beyond the last record if markers or aborted records follow it
            if records and records[-1].offset >= item.end:
                records = [record for record in records if record.offset < item.end]
            if records:
                yield _block(records, wanted)
    finally:
        consumer.close(autocommit=False)


class Consumer(KafkaConsumer):  # type: ignore[misc]
    """Ends its thread if no broker accepts it, unlike kafka-python."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except BaseException:
            if hasattr(self, "_client"):
                self._client.close()
            raise


def settings(options: KafkaOptions) -> dict[str, Any]:
    """Return the settings of the consumer, including the connection."""
    return connection.for_kafka_python(options) | {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
        "isolation_level": options.isolation_level.value,
        # in Python unless crc32c is installed, which the extra kafka brings
        "check_crcs": True,
        "fetch_max_wait_ms": 50,
        "metrics_enabled": False,
    }


def _poll(consumer: Any, partition: TopicPartition, position: int, guard: ReadGuard) -> list[Any]:
    try:
        return consumer.poll(_POLL_MS, max_records=_BLOCK).get(partition, [])  # type: ignore[no-any-return]
    except RIGHTS as error:
        raise RefusedError(str(error)) from error
    except kafka_errors.KafkaError as error:
        if _NO_UTF8 in str(error):  # it reads names of headers as text, and no other part
            guard.no_utf8(position)
        if not error.retriable:
            guard.failed(position, str(error))
        guard.troubled(position, str(error))
        return []


def _block(records: list[Any], wanted: Wanted) -> Block:
    first, last = records[0].offset, records[-1].offset
    whole = last - first + 1 == len(records)
    return Block(
        values=[record.value for record in records],
        offsets=range(first, last + 1) if whole else [record.offset for record in records],
        keys=[record.key for record in records] if wanted.keys else [],
        timestamps_ms=[record.timestamp for record in records] if wanted.timestamps else [],
        headers=[record.headers for record in records] if wanted.headers else [],
    )
