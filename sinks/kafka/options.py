"""The options of the sink, parsed once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from pydantic import Field, field_validator

from twophase.kafka_client.options import Conflict, ConnectionOptions
from twophase.options.parsing import Duration

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
        "`headers`, `partition` and `timestamp` are the parts of a record",
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

    def conflicts(self) -> Iterator[Conflict]:
        """See `ConnectionOptions.conflicts`."""
        if self.topic == self.ledger:
            yield "topic and ledger are the same topic", "give the ledger a topic of its own."
        if self.key is not None and self.format is RecordFormat.RAW:
            yield (
                "key goes with format=json",
                "remove it: with format=raw the key is the column `key`.",
            )

    @property
    def where(self) -> str:
        """The topic and its brokers, for messages."""
        return f"topic {self.topic!r} at {self.bootstrap_servers}"
