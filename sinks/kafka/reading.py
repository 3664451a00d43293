"""Reads ranges of a partition with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from twophase.errors import TargetUnreachableError
from twophase.sinks.kafka.brokers import ConnectionOptions, for_librdkafka

_AT_ONCE, _POLL_S = 1_000, 0.01
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass(frozen=True)
class Entry:
    """One record.

    Attributes:
        offset: its offset.
        key: its key.
        value: its value; None of a tombstone.
    """

    offset: int
    key: bytes
    value: bytes | None


def read(
    options: ConnectionOptions,
    topic: str,
    partition: int,
    start: int,
    end: int | None,
    isolation: str,
) -> list[Entry]:
    """Return the records of a range, in order.

    Args:
        options: of the connection.
        topic: the topic.
        partition: its partition.
        start: the first offset.
        end: the offset behind the last one; None for the end of the partition as it is now.
        isolation: `COMMITTED` or `UNCOMMITTED`.

    Raises:
        TargetUnreachableError: the brokers do not answer, or do not have the range.
    """
    settings = for_librdkafka(options) | {
        "group.id": "twophase-ledger",  # required by librdkafka, and never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 5,
        "log_level": 2,
    }
    where = f"{topic}-{partition}"
    try:
        client: Any = Consumer(settings)
        with closing(client) as consumer:
            at = TopicPartition(topic, partition, start)
            if end is None:
                _, end = consumer.get_watermark_offsets(at, timeout=options.request_timeout_s)
            if start >= end:
                return []
            consumer.assign([at])
            return [*_entries(consumer, where, start, end, options.request_timeout_s)]
    except KafkaException as error:
        raise _unreachable(where, error.args[0].str()) from error


def _entries(
    consumer: Any, where: str, position: int, end: int, patience_s: float
) -> Iterator[Entry]:
    deadline = time.monotonic() + patience_s
    trouble = "no answer"
    while position < end:
        messages = consumer.consume(_AT_ONCE, _POLL_S)
        for message in messages:
            error = message.error()
            if error is None:
                position = max(position, message.offset() + 1)
                if message.offset() < end:
                    yield Entry(message.offset(), message.key() or b"", message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, message.offset())
            elif error.fatal() or message.topic() is not None:
                raise _unreachable(where, error.str())
            else:
                trouble = error.str()
        if messages and messages[-1].error() is None:
            deadline = time.monotonic() + patience_s
        elif time.monotonic() >= deadline:
            raise _unreachable(where, f"{trouble} for {patience_s:g} s at offset {position}")


def _unreachable(where: str, why: str) -> TargetUnreachableError:
    return TargetUnreachableError(
        f"Partition {where} cannot be read: {why}.",
        remedy="check that its brokers run, and that the account may read it.",
    )
