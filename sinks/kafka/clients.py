"""Clients of librdkafka that the driver keeps open, since opening one takes longer than using it:
one reads ranges of the ledger, one writes records outside of any transaction.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from twophase.errors import TargetUnreachableError
from twophase.kafka_client import bounded_close
from twophase.kafka_client.connection import for_librdkafka
from twophase.kafka_client.credentials import fingerprint
from twophase.kafka_client.options import ConnectionOptions
from twophase.kafka_client.peers import look_at_peers

_AT_ONCE, _POLL_S = 1_000, 0.1
_MOST_BYTES = 8 << 20
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

ClientT = TypeVar("ClientT")

_inherited: list[Any] = []
"""Clients of the process that this one was forked from. Their threads are not here, and whoever
closes one, or lets the garbage collector do it, waits for them for ever.
"""


class KeptClient(Generic[ClientT]):
    """One client, opened when it is first used. Safe to use from several threads.

    Another one is opened after a failure, when passwords or PEM files were replaced, as librdkafka
    has those that it was opened with, and in a process that was forked.

    Args:
        options: of the connection.
        open_client: opens a client.
        close_client: closes one.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        open_client: Callable[[], ClientT],
        close_client: Callable[[ClientT], None],
    ) -> None:
        self._options = options
        self._open = open_client
        self._close = close_client
        self._client: ClientT | None = None
        self._secrets = ""
        self._process = os.getpid()
        self._lock = threading.Lock()

    @contextmanager
    def use(self) -> Iterator[ClientT]:
        """Give the client to one caller at a time, who leaves it as it was. A failure ends it."""
        self._leave_to_parent()
        with self._lock:
            client = self._current()
            try:
                yield client
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """Close the client, if there is one; the next use opens another."""
        self._leave_to_parent()
        with self._lock:
            self._end()

    def _current(self) -> ClientT:
        secrets = fingerprint(self._options)
        if secrets != self._secrets:
            self._end()
        if self._client is None:
            self._client, self._secrets = self._open(), secrets
        return self._client

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._close(client)

    def _leave_to_parent(self) -> None:
        if self._process != os.getpid():
            _inherited.append(self._client)
            self._client, self._lock = None, threading.Lock()
            self._process = os.getpid()


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
        self._kept: KeptClient[Any] = KeptClient(options, self._consumer, bounded_close.close)

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Entry]:
        """Return the records of a range, in order; see `stream`."""
        return [*self.stream(topic, partition, start, end)]

    def stream(self, topic: str, partition: int, start: int, end: int) -> Iterator[Entry]:
        """Yield the records of a range, in order, with some megabytes of them in memory at a time.

        Args:
            topic: the topic.
            partition: its partition.
            start: the first offset.
            end: the offset behind the last one.

        Raises:
            TargetUnreachableError: the brokers do not answer, or do not have the range.
        """
        if start >= end:
            return
        where = f"{topic}-{partition}"
        with _reached(where, self._options), self._kept.use() as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            yield from _entries(consumer, where, start, end, self._options)
            consumer.unassign()  # or it would go on fetching

    def end(self, topic: str, partition: int) -> int:
        """Return the end of a partition as it is now.

        Raises:
            TargetUnreachableError: the brokers do not answer.
        """
        at, patience_s = TopicPartition(topic, partition), self._options.request_timeout_s
        with _reached(f"{topic}-{partition}", self._options), self._kept.use() as consumer:
            _, end = consumer.get_watermark_offsets(at, timeout=patience_s)
            return int(end)

    def close(self) -> None:
        """Close the consumer."""
        self._kept.close()

    def _consumer(self) -> Any:
        settings = for_librdkafka(self._options) | {
            "group.id": "twophase-ledger",  # required by librdkafka, and never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": self._isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 5,
            "fetch.max.bytes": _MOST_BYTES,
            "queued.max.messages.kbytes": _MOST_BYTES // 1024,
            "max.poll.interval.ms": 24 * 3600 * 1000,  # nobody has to look more often
            "log_level": 2,
        }
        return Consumer(settings)


@contextmanager
def _reached(where: str, options: ConnectionOptions) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _unreachable(where, error.args[0].str(), options) from error


def _entries(
    consumer: Any, where: str, position: int, end: int, options: ConnectionOptions
) -> Iterator[Entry]:
    patience_s = options.request_timeout_s
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
                raise _unreachable(where, error.str(), options)
            else:
                trouble = error.str()
        if messages and messages[-1].error() is None:
            deadline = time.monotonic() + patience_s
        elif time.monotonic() >= deadline:
            why = f"{trouble} for {patience_s:g} s at offset {position}"
            raise _unreachable(where, why, options)


def _next(consumer: Any) -> list[Any]:
    """Return what is there; wait for the first message, and for no other one."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]


def _unreachable(where: str, why: str, options: ConnectionOptions) -> TargetUnreachableError:
    return TargetUnreachableError(
        f"Partition {where} cannot be read: {why}{_missed(options)}.",
        remedy="check that its brokers run, and that the account may read it.",
    )


class RecordWriter:
    """Writes to the ledger with one producer, which is kept open.

    Args:
        options: of the connection.
        topic: the ledger's.
    """

    def __init__(self, options: ConnectionOptions, topic: str) -> None:
        self._options = options
        self._topic = topic
        self._failures: list[str] = []
        self._kept: KeptClient[Any] = KeptClient(options, self._producer, _let_go)

    def write(self, records: Mapping[str, bytes | None], partition: int) -> None:
        """Write records, and return when all replicas have them.

        Args:
            records: values by key; None deletes what is there.
            partition: of the ledger.

        Raises:
            TargetUnreachableError: not all of them are there, as far as is known.
        """
        try:
            with self._kept.use() as producer:
                self._failures.clear()
                for key, value in records.items():
                    producer.produce(self._topic, value, key.encode(), partition)
                left = producer.flush(2 * self._options.request_timeout_s)
                if left or self._failures:
                    raise self._not_written(self._failures[0] if self._failures else "no answer")
        except KafkaException as error:
            raise self._not_written(error.args[0].str()) from error

    def close(self) -> None:
        """Close the producer."""
        self._kept.close()

    def _producer(self) -> Any:
        settings = for_librdkafka(self._options) | {
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 2,
            "message.timeout.ms": int(self._options.request_timeout_s * 1000),
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: self._failures.append(error.str()),
        }
        return Producer(settings)

    def _not_written(self, why: str) -> TargetUnreachableError:
        return TargetUnreachableError(
            f"Records of the ledger {self._topic!r} could not be written: "
            f"{why}{_missed(self._options)}.",
            remedy="check that its brokers run, that enough replicas are in sync, and that the "
            "account may write to it.",
        )


def _missed(options: ConnectionOptions) -> str:
    """Return which brokers do not answer while others do, as a clause of an error."""
    seen = look_at_peers(options).seen
    return f"; {seen}" if seen else ""


def _let_go(producer: Any) -> None:
    """Drop what was not sent: it must not arrive later. Without a reference a producer ends."""
    producer.purge()
    producer.flush(0)
