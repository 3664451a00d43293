"""A topic under test, read by a consumer that knows nothing of the product."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from integration.kafka.topics import Topics
from twophase.contract.committable import Committable
from twophase.contract.sink import SinkContext
from twophase.ids import Attempt
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.names import Owner, name_of
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.requests import ONGOING
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
        written = (*self.written, self.ledger, self.staging)
        return (
            [[*map(_shown, self.topics.records(name, "read_uncommitted"))] for name in written],
            sorted(one for one in listed if f"/{self.topic}/" in one.transactional_id),
        )

    def wait_until_aborted(self, piece: Committable) -> None:
        """Wait until the brokers have ended the transaction of a piece by themselves."""
        name = name_of(self.topic, piece)
        given = {"kafka.bootstrap.servers": self.topics.servers, "topic": self.topic}
        with closing(Brokers(KafkaSinkOptions.parse(given, "test"))) as brokers:
            while brokers.describe([name])[name].state == ONGOING:
                brokers.wait()

    @property
    def staging(self) -> str:
        """The topic in which rows wait, if the sink is `protocol=staged`."""
        return Owner(JOB, SINK, self.topic).staging(self.ledger)

    def rows_visible(self) -> list[Row]:
        """See `SinkHarness`."""
        return [self.row(value) for name in self.written for value in self.topics.marked(name)]

    @property
    def written(self) -> list[str]:
        """The topics that rows may go to."""
        return [self.topic]

    def row(self, value: bytes) -> Row:
        """Return the row that a record is of."""
        row: Row = json.loads(value)
        for field in self.schema:
            if pa.types.is_timestamp(field.type) and row.get(field.name):
                row[field.name] = datetime.fromisoformat(row[field.name])
        return row


class RoutedHarness(KafkaHarness):
    """Every second row names another topic."""

    schema = pa.schema([pa.field("place", pa.string()), *KafkaHarness.schema])

    def __init__(self, topics: Topics, ledger: str = "", **options: Any) -> None:
        self.other = topics.create(1, fresh_name("other"))
        routing = {"topic_column": "place", "other_topics": [self.other]}
        super().__init__(topics, ledger, **(options | routing))

    def elsewhere(self) -> RoutedHarness:
        """See `SinkHarness`."""
        return RoutedHarness(self.topics, self.ledger, **self.options)

    @property
    def written(self) -> list[str]:
        """See `KafkaHarness`."""
        return [self.topic, self.other]

    def _timed(self, rows: Sequence[Row], times: Sequence[datetime | None]) -> list[Row]:
        places = (self.other if number % 2 else None for number in range(len(rows)))
        timed = super()._timed(rows, times)
        return [{"place": place, **row} for place, row in zip(places, timed, strict=True)]


def _shown(message: Message) -> Mapping[str, Any]:
    parts = ("partition", "offset", "key", "value", "headers")
    return {part: getattr(message, part)() for part in parts}
