"""The options of the sink, parsed once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from pydantic import Field, field_validator

from twophase.kafka_client.options import Conflict, ConnectionOptions
from twophase.options.parsing import Duration, Names

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class RecordFormat(StrEnum):
    """What becomes of a row: a JSON object, or the parts of a record as its columns have them."""

    JSON = "json"
    RAW = "raw"


class Protocol(StrEnum):
    """Where written rows wait for the decision: in an open transaction, or in a staging topic."""

    TRANSACTION = "transaction"
    STAGED = "staged"


class Compression(StrEnum):
    """Kafka's compression of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class KafkaSinkOptions(ConnectionOptions):
    """The options of `KafkaSink`; those of the connection are the Kafka source's."""

    whose: ClassVar[str] = "KafkaSink"

    topic: str = Field(description="the topic, which exists")
    format: RecordFormat = Field(
        default=RecordFormat.JSON,
        description="`json`: each row is one JSON object; `raw`: its columns `key`, `value`, "
        "`headers`, `partition`, `timestamp` and `topic` are the parts of a record",
    )
    other_topics: Names = Field(
        default=(),
        description="topics, which exist, that a row may name instead of `topic`",
        json_schema_extra={"default": "none"},
    )
    topic_column: str | None = Field(
        default=None,
        min_length=1,
        description="json: the column, a text, in which a row names its topic, one of "
        "`other_topics`; NULL is `topic`. `raw`: it is the column `topic`",
        json_schema_extra={"default": "no column"},
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="json: the column whose value is the record's key too; text, bytes or an "
        "integer",
        json_schema_extra={"default": "no key"},
    )
    protocol: Protocol = Field(
        default=Protocol.TRANSACTION,
        description="`transaction`: rows wait in open transactions of the topic, for at most "
        "`transaction_timeout`; `staged`: in a topic of their own, for any length of time, and are "
        "copied",
    )
    ledger: str = Field(
        default="twophase-ledger",
        description="compacted topic with the proofs and fences of all jobs of a cluster; created "
        "if it does not exist. Keep it",
    )
    transaction_timeout_s: Duration = Field(
        default=900.0,
        alias="transaction_timeout",
        ge=10,
        le=2_000_000,
        description="at most the brokers' `transaction.max.timeout.ms`. `transaction`: how long "
        "written records may wait for their commit; a job that is down for longer loses what it "
        "had decided and not committed. `staged`: how long the copy of a task's records may take",
    )
    compression: Compression = Field(
        default=Compression.NONE,
        description="of batches of records: `none`, `gzip`, `snappy`, `lz4` or `zstd`",
    )

    @field_validator("topic", "ledger")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _TOPIC.fullmatch(value) or value in (".", ".."):
            raise ValueError("give the name of one topic: letters, digits, '.', '_' and '-'")
        return value

    @field_validator("other_topics")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(cls._name, value))

    def conflicts(self) -> Iterator[Conflict]:
        """See `ConnectionOptions.conflicts`."""
        if self.ledger in self.topics:
            yield "topic and ledger are the same topic", "give the ledger a topic of its own."
        if len(set(self.topics)) < len(self.topics):
            yield "topic and other_topics name a topic twice", "name each topic once."
        is_raw = self.format is RecordFormat.RAW
        if is_raw and self.topic_column is not None:
            yield (
                "topic_column goes with format=json",
                "remove it: with format=raw it is the column `topic`.",
            )
        elif not is_raw and bool(self.other_topics) != (self.topic_column is not None):
            yield (
                "other_topics and topic_column go together",
                "name the topics in other_topics, and in topic_column the column with them.",
            )
        if is_raw and self.key is not None:
            yield (
                "key goes with format=json",
                "remove it: with format=raw the key is the column `key`.",
            )

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that rows may go to."""
        return (self.topic, *self.other_topics)

    @property
    def where(self) -> str:
        """The topics and their brokers, for messages."""
        names = ", ".join(map(repr, self.topics))
        return f"topic{'s' * bool(self.other_topics)} {names} at {self.bootstrap_servers}"
