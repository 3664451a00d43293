"""Fetches a range with librdkafka: the fast engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from twophase.errors import PreflightError
from twophase.sources.kafka import connection
from twophase.sources.kafka.chunk import Chunk, Wanted, run_of
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions

# Small blocks keep the messages of one call in the processor's cache: 1,000 cost half of what 20,000 do, a message.
_BLOCK = 1_000
_POLL_S = 0.01
_GROUP = "twophase-read"
_RIGHTS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)


def fetch(options: KafkaOptions, item: OffsetRange, wanted: Wanted, guard: ReadGuard) -> Iterator[Chunk]:
    """Yield the records of a range in order, in bounded chunks, until the position has reached its end.

    Raises:
        SourceLossError: records of the range are gone.
        SourceUnavailableError: the read stands still.
    """
    consumer = Consumer(settings(options))
    try:
        consumer.assign([TopicPartition(item.topic, item.partition, item.start)])
        position, chunk = item.start, Chunk()
        while position < item.end:
            messages: list[Any] = consumer.consume(min(_BLOCK, item.end - position), _POLL_S)
            if any(map(Message.error, messages)):
                position = _failures(messages, position, guard)
                messages = [message for message in messages if message.error() is None]
            if not messages:
                guard.waited(position)
                continue
            guard.moved()
            position = max(position, messages[-1].offset() + 1)
            if position > item.end:
                messages = [message for message in messages if message.offset() < item.end]
            _collect(chunk, messages, wanted)
            if chunk.full:
                yield chunk
                chunk = Chunk()
        if len(chunk):
            yield chunk
    finally:
        consumer.close()


def settings(options: KafkaOptions) -> dict[str, Any]:
    """What the consumer is told, connection included."""
    return connection.for_librdkafka(options) | {
        "group.id": options.group_id or _GROUP,  # required by librdkafka; a consumer with `assign` never joins it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "isolation.level": options.isolation_level.value,
        "enable.partition.eof": True,
        "check.crcs": True,
        # By default a full queue puts the fetcher to sleep for a second, and an end of log holds up the next read.
        "fetch.queue.backoff.ms": 2,
        "fetch.wait.max.ms": 20,
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 8 * 1024,
    }


def _failures(messages: list[Any], position: int, guard: ReadGuard) -> int:
    """Deal with the events among messages; return how far the end of the partition has moved the position."""
    for message in messages:
        error = message.error()
        if error is None:
            position = max(position, message.offset() + 1)
        elif error.code() == KafkaError._PARTITION_EOF:
            position = max(position, message.offset())  # what was skipped before it is markers and aborted records
        elif error.code() in _RIGHTS:
            raise PreflightError(f"Kafka refuses to be read: {error.str()}.", remedy="check user, password and ACLs.")
        else:
            guard.troubled(position, error.str())
    return position


def _collect(chunk: Chunk, messages: list[Any], wanted: Wanted) -> None:
    if not messages:
        return
    run = run_of(messages[0].offset(), messages[-1].offset(), len(messages))
    chunk.runs.append(run if run is not None else [message.offset() for message in messages])
    chunk.values += [message.value() for message in messages]
    chunk.size_bytes += sum(map(len, messages))
    if wanted.keys:
        chunk.keys += [message.key() for message in messages]
    if wanted.timestamps:
        chunk.timestamps_ms += [message.timestamp()[1] for message in messages]
    if wanted.headers:
        chunk.headers += [message.headers() for message in messages]
