"""Reads ranges of a partition with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from twophase.errors import TargetUnreachableError
from twophase.kafka_client.connection import for_librdkafka
from twophase.kafka_client.options import ConnectionOptions
from twophase.sinks.kafka.clients import KeptClient

_AT_ONCE, _POLL_S = 1_000, 0.1
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


class RangeReader:
    """Reads with one consumer, which is kept open.

    Args:
        options: of the connection.
        isolation: `COMMITTED` or `UNCOMMITTED`.
    """

    def __init__(self, options: ConnectionOptions, isolation: str) -> None:
        self._options = options
        self._isolation = isolation
        self._kept: KeptClient[Any] = KeptClient(options, self._consumer, _closed)

    def read(self, topic: str, partition: int, start: int, end: int | None) -> list[Entry]:
        """Return the records of a range, in order.

        Args:
            topic: the topic.
            partition: its partition.
            start: the first offset.
            end: the offset behind the last one; None for the end of the partition as it is now.

        Raises:
            TargetUnreachableError: the brokers do not answer, or do not have the range.
        """
        where, patience_s = f"{topic}-{partition}", self._options.request_timeout_s
        at = TopicPartition(topic, partition, start)
        try:
            with self._kept.use() as consumer:
                if end is None:
                    _, end = consumer.get_watermark_offsets(at, timeout=patience_s)
                if start >= end:
                    return []
                consumer.assign([at])
                found = [*_entries(consumer, where, start, end, patience_s)]
                consumer.unassign()  # or it would go on fetching
                return found
        except KafkaException as error:
            raise _unreachable(where, error.args[0].str()) from error

    def close(self) -> None:
        """Close the consumer."""
        self._kept.close()

    def _consumer(self) -> Any:
        settings = for_librdkafka(self._options) | {
            "group.id": "twophase-ledger",  # required by librdkafka, and never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "isolation.level": self._isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 5,
            "max.poll.interval.ms": 24 * 3600 * 1000,  # nobody has to look more often
            "log_level": 2,
        }
        return Consumer(settings)


def _closed(consumer: Any) -> None:
    consumer.close()


def _entries(
    consumer: Any, where: str, position: int, end: int, patience_s: float
) -> Iterator[Entry]:
    deadline = time.monotonic() + patience_s
    trouble = "no answer"
    while position < end:
        messages = _next(consumer)
        for message in messages:
            error = message.error()
            if error is None:
                if position <= message.offset() < end:
                    yield Entry(message.offset(), message.key() or b"", message.value())
                position = max(position, message.offset() + 1)
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


def _next(consumer: Any) -> list[Any]:
    """Return what is there; wait for the first message, and for no other one."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]


def _unreachable(where: str, why: str) -> TargetUnreachableError:
    return TargetUnreachableError(
        f"Partition {where} cannot be read: {why}.",
        remedy="check that its brokers run, and that the account may read it.",
    )
