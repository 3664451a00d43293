"""A topic under test, read by a consumer that knows nothing of the product."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from integration.kafka.topics import Topics
from twophase.contract.sink import SinkContext
from twophase.ids import Attempt
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.sinks.kafka.sink import KafkaSink
from twophase.testing.harness import FIRST, JOB, SINK, Row, SinkHarness, fresh_name

PARTITIONS = 3


class KafkaHarness(SinkHarness):
    """One topic of three partitions, and a ledger.

    Args:
        topics: on the broker.
        ledger: the ledger's topic; a new name if there is none.
        options: the sink's options.
    """

    schema = pa.schema(
        [
            *SinkHarness.schema,
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
        ]
    )

    def __init__(self, topics: Topics, ledger: str = "", **options: Any) -> None:
        self.topics = topics
        self.topic = topics.create(PARTITIONS, fresh_name("sink"))
        self.ledger = ledger or fresh_name("ledger")
        self.options = options

    def new_sink(self, **options: Any) -> KafkaSink:
        """See `SinkHarness`."""
        given = {
            "kafka.bootstrap.servers": self.topics.servers,
            "topic": self.topic,
            "ledger": self.ledger,
        }
        return KafkaSink(**(given | self.options | options))

    def opened(self, attempt: Attempt = FIRST, **options: Any) -> OpenKafkaSink:
        """Return a sink that is open and fenced for an attempt."""
        sink = self.new_sink(**options).open(SinkContext(JOB, SINK, self.schema, parallelism=2))
        sink.fence(attempt)
        return sink

    def unreachable(self) -> KafkaSink:
        """See `SinkHarness`."""
        return self.new_sink(
            **{"kafka.bootstrap.servers": "nowhere.invalid:1", "request.timeout": "1 s"}
        )

    def elsewhere(self) -> KafkaHarness:
        """See `SinkHarness`: another topic, with the same ledger."""
        return KafkaHarness(self.topics, self.ledger, **self.options)

    def contents(self) -> object:
        """See `SinkHarness`."""
        found = self.topics.admin.list_transactions()
        listed = [one for listing in found.values() for one in listing]
        written = (self.topic, self.ledger, self.staging)
        return (
            [[*map(_shown, self.topics.records(name, "read_uncommitted"))] for name in written],
            sorted(one for one in listed if f"/{self.topic}/" in one.transactional_id),
        )

    @property
    def staging(self) -> str:
        """The topic in which rows wait, if the sink is `protocol=staged`."""
        return Owner(JOB, SINK, self.topic).staging(self.ledger)

    def rows_visible(self) -> list[Row]:
        """See `SinkHarness`."""
        return [*map(self.row, self.topics.marked(self.topic))]

    def row(self, value: bytes) -> Row:
        """Return the row that a record is of."""
        row: Row = json.loads(value)
        for field in self.schema:
            if pa.types.is_timestamp(field.type) and row.get(field.name):
                row[field.name] = datetime.fromisoformat(row[field.name])
        return row


def _shown(message: Message) -> Mapping[str, Any]:
    parts = ("partition", "offset", "key", "value", "headers")
    return {part: getattr(message, part)() for part in parts}
