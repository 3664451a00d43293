"""What a topic takes, for rows that are written to it after the decision: none may fail then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from twophase.errors import PreflightError, RejectedRowsError
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.chunks import size_of
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.rows import KafkaRecord
from twophase.sinks.kafka.sender import QUEUE_BYTES
from twophase.sinks.kafka.topics import target_topics

_CLIENT_BYTES = 1_000_000
"""librdkafka's message.max.bytes, and its batch.size."""
_MOST_BYTES = QUEUE_BYTES // 2
_BATCH_BYTES = 128
"""What a batch of one record has besides its parts, at most."""
_BYTES, _POLICY = "max.message.bytes", "cleanup.policy"
_AHEAD, _BEHIND = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
_TYPE, _LOG_APPEND_TIME = "message.timestamp.type", "LogAppendTime"
_FOR_EVER_MS = 2**63 - 1


@dataclass(frozen=True)
class TopicLimits:
    """The limits of a topic.

    Attributes:
        topic: its name.
        partitions: how many it has.
        most_bytes: of a record.
        needs_key: whether it is compacted.
        ahead_ms: how far the timestamp of a record may be ahead of the clock.
        behind_ms: how far it may be behind.
    """

    topic: str
    partitions: int
    most_bytes: int
    needs_key: bool
    ahead_ms: int
    behind_ms: int

    @classmethod
    def of(cls, topic: str, partitions: int, settings: Mapping[str, str]) -> TopicLimits:
        """Return the limits of a topic by its settings.

        Raises:
            PreflightError: they cannot be read.
        """
        if _BYTES not in settings:
            raise PreflightError(
                f"The settings of topic {topic!r} cannot be read, and rows that it does not take "
                "would be found only when they are decided (protocol=staged).",
                remedy="give the account the right to DESCRIBE_CONFIGS of it, or set "
                "`protocol=transaction`.",
            )
        is_checked = settings.get(_TYPE) != _LOG_APPEND_TIME
        ahead_ms, behind_ms = (
            int(settings.get(name, _FOR_EVER_MS)) if is_checked else _FOR_EVER_MS
            for name in (_AHEAD, _BEHIND)
        )
        return cls(
            topic,
            partitions,
            min(_CLIENT_BYTES, int(settings[_BYTES])) - _BATCH_BYTES,
            "compact" in settings.get(_POLICY, ""),
            ahead_ms,
            behind_ms,
        )

    def check_times(self) -> None:
        """Check that records with timestamps of their own may wait for as long as it takes.

        Raises:
            PreflightError: they may not.
        """
        if self.behind_ms < _FOR_EVER_MS:
            raise PreflightError(
                f"Topic {self.topic!r} takes no records whose timestamps are more than "
                f"{self.behind_ms} ms old ({_BEHIND}), and rows with timestamps of their own may "
                "wait for longer (protocol=staged).",
                remedy=f"delete {_BEHIND} of the topic, or set {_TYPE}={_LOG_APPEND_TIME}; or set "
                "`protocol=transaction`, or leave out the column timestamp.",
            )

    def check(self, record: KafkaRecord, number: int) -> None:
        """Check a record.

        Args:
            record: of a row.
            number: of the row within its task, from 1.

        Raises:
            RejectedRowsError: the topic does not take it.
        """
        if reason := self._refusal(record):
            raise RejectedRowsError(
                f"Row {number} of a task cannot be written to topic {self.topic!r}: {reason}.",
                remedy="correct or filter these rows before the sink, or let the topic take them "
                f"({_CLIENT_BYTES - _BATCH_BYTES:,} bytes at most wait in a staging topic).",
            )

    def _refusal(self, record: KafkaRecord) -> str:
        if (size := size_of(record)) > self.most_bytes:
            return (
                f"it has {size} bytes, and is too large: {self.most_bytes} at most, which is "
                f"{_BATCH_BYTES} less than {_BYTES} or the {_CLIENT_BYTES:,} of a staging topic"
            )
        if record.partition is not None and not 0 <= record.partition < self.partitions:
            return f"there is no partition {record.partition}"
        if self.needs_key and record.key is None:
            return f"it has no key, and the topic is compacted ({_POLICY})"
        if record.timestamp_ms is None:
            return ""
        ahead_ms = record.timestamp_ms - int(time.time() * 1000)
        return f"its timestamp is {ahead_ms} ms ahead ({_AHEAD})" * (ahead_ms > self.ahead_ms)


def sizes_of(brokers: Brokers, options: KafkaSinkOptions) -> Mapping[str, int]:
    """Return settings of librdkafka by which each topic takes its batches, and by which a record
    may be as large as a topic takes it; those of librdkafka if the topics' settings are hidden.
    """
    settings = brokers.settings(*options.topics).values()
    found = [int(one[_BYTES]) for one in settings if _BYTES in one]
    if len(found) < len(settings):
        return {}
    largest = min(max(*found, _CLIENT_BYTES), _MOST_BYTES)
    return {
        "message.max.bytes": largest,
        "batch.size": max(min(*found, _CLIENT_BYTES) - _BATCH_BYTES, 1),
    }


def limits_of(brokers: Brokers, options: KafkaSinkOptions) -> Mapping[str, TopicLimits]:
    """Return the limits of the topics that rows may go to, by name."""
    topics, settings = target_topics(brokers, options), brokers.settings(*options.topics)
    return {
        name: TopicLimits.of(name, len(found.epochs), settings[name])
        for name, found in topics.items()
    }
