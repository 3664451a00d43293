"""Fetches a range with librdkafka: the fast engine."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from twophase.kafka_client import connection
from twophase.kafka_client.access import RefusedError
from twophase.kafka_client.bounded_close import closing_in_time
from twophase.kafka_client.credentials import check_secrets, fingerprint
from twophase.sources.kafka.block import Block, Wanted
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions

_BLOCK = 1_000
_BLOCK_BYTES = 1024 * 1024
_QUEUED = 20_000
_POLL_S = 0.01
# The garbage collector tracks each message; all messages of a block are freed
# before the next block.
_GC_THRESHOLD = 50_000
_GROUP = "twophase-read"
_RIGHTS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
)


def fetch(
    options: KafkaOptions, item: OffsetRange, wanted: Wanted, guard: ReadGuard
) -> Iterator[Block]:
    """Yield the records of a range in order until the position has reached its end.

    Raises:
        SourceLossError: records of the range are gone.
        BadRecordError: the name of a header is no text.
        SourceUnavailableError: the read makes no progress.
        RefusedError: a broker refuses the client, or the secrets that it has are old.
        SecretError: a secret cannot be read.
    """
    # A new consumer for each read, so that its queue cannot hold anything from an earlier
    # assignment. It costs 10 ms.
    secrets, troubles, progress = fingerprint(options), list[str](), FetchProgress(item)
    with (
        closing_in_time(_consumer(options, item, guard, troubles, progress)) as consumer,
        _rare_collections(),
    ):
        consumer.assign([TopicPartition(item.topic, item.partition, item.start)])
        position, most = item.start, _BLOCK
        while position < item.end:
            messages: list[Any] = consumer.consume(min(most, item.end - position), _POLL_S)
            if any(map(Message.error, messages)):
                position = _failures(messages, position, guard, troubles)
                messages = [message for message in messages if message.error() is None]
            if troubles:
                guard.troubled(position, troubles[-1])
                troubles.clear()
                if secrets != fingerprint(options):
                    raise RefusedError("the passwords or PEM files were replaced")
            if not messages:
                if progress.has_moved():
                    guard.moved()
                guard.waited(position)
                continue
            guard.moved()
            most = _next_request(messages)
            position = max(position, messages[-1].offset() + 1)
            if position > item.end:
                messages = [message for message in messages if message.offset() < item.end]
            if messages:
                yield _block(messages, wanted, guard)


class FetchProgress:
    """How far the client has fetched a partition: also where it hands nothing on, because a run of
    records is aborted, of which it says nothing else.
    """

    def __init__(self, item: OffsetRange) -> None:
        self._item = item
        self._offset = self._seen = item.start

    def note(self, statistics: str) -> None:
        """Take the client's statistics, a JSON document."""
        topic = json.loads(statistics)["topics"].get(self._item.topic, {"partitions": {}})
        partition = topic["partitions"].get(str(self._item.partition), {})
        self._offset = max(self._offset, partition.get("next_offset", 0))

    def has_moved(self) -> bool:
        """Return whether it has fetched more since the last call."""
        seen, self._seen = self._seen, self._offset
        return self._seen > seen


def _consumer(
    options: KafkaOptions,
    item: OffsetRange,
    guard: ReadGuard,
    troubles: list[str],
    progress: FetchProgress,
) -> Any:
    def made() -> Any:
        given = settings(options, troubles, item.end - item.start)
        return Consumer(given | {"stats_cb": progress.note})

    try:
        return made()
    except KafkaException:
        check_secrets(options)  # a file may have been replaced just now
    try:
        return made()
    except KafkaException as error:
        guard.refused(str(error))


@contextmanager
def _rare_collections() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(_GC_THRESHOLD, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _next_request(messages: Sequence[Any]) -> int:
    """Return how many messages to ask for next, by the size of the last ones."""
    bytes_of_two = 1 + len(messages[0]) + len(messages[-1])
    return max(1, min(_BLOCK, 2 * _BLOCK_BYTES // bytes_of_two))


def settings(options: KafkaOptions, troubles: list[str], records: int) -> dict[str, Any]:
    """Return the settings of the consumer, including the connection.

    Args:
        options: of the source.
        troubles: gets the failures of the client that do not arrive with the messages.
        records: that will be read, at most; the client keeps no more of them ready.
    """
    own = connection.for_librdkafka(options)
    if "oauth_cb" in own:

        def failed(error: Any) -> None:
            # what is raised here is raised by `consume`
            if error.code() == KafkaError._AUTHENTICATION:
                raise RefusedError(error.str())
            troubles.append(error.str())

        own["error_cb"] = failed
    return own | {
        # required by librdkafka; a consumer with `assign` never joins it
        "group.id": options.group_id or _GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": options.isolation_level.value,
        "enable.partition.eof": True,
        "max.poll.interval.ms": 24 * 3600 * 1000,  # Kafka must not limit how slow the sink may be
        "check.crcs": True,
        # By default the fetcher sleeps for a second when its queue is full, and an end of log
        # delays the next read.
        "fetch.queue.backoff.ms": 2,
        "fetch.wait.max.ms": 5,
        "statistics.interval.ms": 1_000,
        "log_level": 2,  # failures arrive with the messages
        "queued.min.messages": max(1, min(_QUEUED, records)),
        "queued.max.messages.kbytes": 8 * 1024,
    }


def _failures(messages: list[Any], position: int, guard: ReadGuard, troubles: list[str]) -> int:
    """Handle the events among messages; return the position, which they may have advanced.

    After an error of the partition, such as a wrong checksum, librdkafka goes on after the records
    concerned, so any such error ends the read. It recovers by itself from errors of the whole
    client, such as a lost connection: they are added to `troubles`.
    """
    for message in messages:
        error = message.error()
        if error is None:
            position = max(position, message.offset() + 1)
        elif error.code() == KafkaError._PARTITION_EOF:
            # only markers and aborted records were skipped before it
            position = max(position, message.offset())
        elif error.code() in _RIGHTS:
            raise RefusedError(error.str())
        elif message.topic() is None and not error.fatal():
            troubles.append(error.str())
        else:
            guard.failed(position, error.str())
    return position


def _headers(messages: list[Any], guard: ReadGuard) -> list[Any]:
    try:
        return [message.headers() for message in messages]
    except (UnicodeDecodeError, SystemError):  # it may come with a later message, or as the latter
        guard.no_utf8(messages[0].offset())


def _block(messages: list[Any], wanted: Wanted, guard: ReadGuard) -> Block:
    first, last = messages[0].offset(), messages[-1].offset()
    whole = last - first + 1 == len(messages)
    return Block(
        values=[message.value() for message in messages],
        offsets=range(first, last + 1) if whole else [message.offset() for message in messages],
        keys=[message.key() for message in messages] if wanted.keys else [],
        timestamps_ms=[message.timestamp()[1] for message in messages] if wanted.timestamps else [],
        headers=_headers(messages, guard) if wanted.headers else [],
    )
