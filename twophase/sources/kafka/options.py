"""The options of the source `twophase-kafka`; those of its connection: `connection_options`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field

from twophase.ids import check_name
from twophase.kafka_client.options import Conflict, ConnectionOptions, IsolationLevel
from twophase.options.parsing import Duration
from twophase.sources.kafka.offsets import WHERE
from twophase.sources.kafka.starting_offsets import (
    Committed,
    Earliest,
    Fallback,
    Starting,
    parse_starting,
)

RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NO_TOPICS = (".", "..")


class ValueFormat(StrEnum):
    """The format of the rows: the record as it is, or its value parsed into the schema."""

    RAW = "raw"
    JSON = "json"


class OnBadRecord(StrEnum):
    """The handling of a record that does not fit the schema."""

    FAIL = "fail"
    DROP = "drop"


class FetchEngine(StrEnum):
    """The client that fetches on the executors; `auto` is librdkafka if it is installed."""

    AUTO = "auto"
    KAFKA_PYTHON = "kafka-python"
    LIBRDKAFKA = "librdkafka"


def _parse_names(value: object) -> object:
    """Split a text into its names."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _parse_topics(value: object) -> object:
    """Split a text into names of topics, each once."""
    topics = _parse_names(value)
    if isinstance(topics, tuple):
        bad = [topic for topic in topics if not _TOPIC.fullmatch(topic) or topic in _NO_TOPICS]
        if bad or not topics:
            wrong = bad[0] if bad else ""
            raise ValueError(f"give topic names separated by commas; {wrong!r} is not a topic name")
        return tuple(dict.fromkeys(topics))
    return topics


def _check_pattern(value: object) -> object:
    """Check that a text is a regular expression."""
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
    return value


def _columns(value: object) -> object:
    columns = _parse_names(value)
    if isinstance(columns, tuple):
        bad = [column for column in columns if column not in RAW_COLUMNS]
        if bad or not columns or len(set(columns)) != len(columns):
            raise ValueError(f"list each column at most once; allowed: {', '.join(RAW_COLUMNS)}")
    return columns


class KafkaOptions(ConnectionOptions):
    """The options, as in docs/kafka.md. Keys are compared without regard to case, as Spark does;
    those of Spark's own source: `twophase.kafka_client.other_names`.
    """

    whose: ClassVar[str] = WHERE

    subscribe: Annotated[tuple[str, ...], BeforeValidator(_parse_topics)] = Field(
        default=(),
        description="topics, separated by commas",
        json_schema_extra={"default": "one of them", "type": "names"},
    )
    subscribe_pattern: Annotated[str | None, BeforeValidator(_check_pattern)] = Field(
        default=None,
        alias="subscribePattern",
        description="a regular expression for whole names of topics",
        json_schema_extra={"default": "one of them"},
    )
    uid: str = Field(
        default="kafka",
        description="names the source in its offsets; give each source of a job its own, and "
        "keep it",
    )
    group_id: str | None = Field(
        default=None,
        alias="group.id",
        min_length=1,
        description="consumer group whose offsets are committed when a checkpoint is complete; "
        "it is never joined",
    )
    starting: Annotated[Starting, BeforeValidator(parse_starting)] = Field(
        default=Earliest(),
        alias="startingOffsets",
        description="`earliest`, `latest`, `committed`, `timestamp:MILLISECONDS`, or "
        '`{"topic": {"0": 123, "1": -2}}` (-2 earliest, -1 latest). Only a fresh start reads it',
        json_schema_extra={"default": "`earliest`", "type": "text"},
    )
    fallback: Fallback | None = Field(
        default=None,
        alias="startingOffsets.fallback",
        description="for partitions without a committed or named offset; "
        "without it they are an error",
    )
    value_format: ValueFormat = Field(
        default=ValueFormat.RAW,
        alias="value.format",
        description="`raw`: the record's own columns; `json`: the value parsed into the schema",
    )
    on_bad_record: OnBadRecord = Field(
        default=OnBadRecord.FAIL,
        alias="json.on_error",
        description="`fail`: a record that does not fit stops the job, named by topic, partition "
        "and offset; `drop`: it is left out, and each task logs how many",
    )
    on_tombstone: OnBadRecord | None = Field(
        default=None,
        alias="json.on_tombstone",
        description="the same for a record without a value, as compacted topics have for a "
        "deleted key; counted apart",
        json_schema_extra={"default": "as `json.on_error`"},
    )
    skip_bytes: int = Field(
        default=0,
        alias="json.skip_bytes",
        ge=0,
        le=1000,
        description="bytes before the JSON of each value, as serializers of a schema registry put "
        "them: 5 of Confluent's, 9 of Apicurio's with an id of 8 bytes, 18 of AWS Glue's",
    )
    columns: Annotated[tuple[str, ...], BeforeValidator(_columns)] = Field(
        default=RAW_COLUMNS[:-1],
        description="raw: the columns wanted; `headers` too. Fewer are faster",
        json_schema_extra={"type": "names"},
    )
    max_per_trigger: int | None = Field(
        default=None,
        alias="maxRecordsPerTrigger",
        gt=0,
        description="offsets a batch may admit, shared by lag. For a minute after each start the "
        "first batch admits at most 20,000, and each further one three times as many as the one "
        "before, up to this limit "
        "([0038](decisions/0038-what-a-start-has-to-wait-for.md))",
    )
    max_per_partition: int | None = Field(
        default=None,
        alias="maxRecordsPerPartition",
        gt=0,
        description="offsets a batch may admit of one partition",
    )
    min_read_tasks: int = Field(
        default=1,
        alias="minReadTasks",
        ge=1,
        le=100_000,
        description="split ranges until a batch has so many read tasks",
    )
    isolation_level: IsolationLevel = Field(
        default=IsolationLevel.READ_COMMITTED,
        alias="isolation.level",
        description="`read_committed` leaves out records of open and aborted transactions",
    )
    fetch_engine: FetchEngine = Field(
        default=FetchEngine.AUTO,
        alias="fetch.engine",
        description="the client on the executors; `auto` is librdkafka if it is there",
    )
    read_timeout_s: Duration = Field(
        default=120.0,
        alias="read.timeout",
        ge=1,
        description="a read without progress for this long fails, and says what it waits for",
    )
    discovery_interval_s: Duration = Field(
        default=10.0,
        alias="partition.discovery.interval",
        ge=0.1,
        description="how often new partitions and topics are looked for while nothing else is new",
    )

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str = "") -> Self:
        """See `ConnectionOptions.parse`."""
        parsed = super().parse(options, where)
        check_name("source uid", parsed.uid)
        return parsed

    def conflicts(self) -> Iterator[Conflict]:
        """See `ConnectionOptions.conflicts`."""
        yield from _source_conflicts(self)


def _source_conflicts(options: KafkaOptions) -> Iterator[Conflict]:
    if bool(options.subscribe) == bool(options.subscribe_pattern):
        yield (
            "give one of subscribe and subscribePattern, not both and not neither",
            "name the topics in `subscribe`, or a pattern for them in `subscribePattern`.",
        )
    if isinstance(options.starting, Committed) and options.group_id is None:
        yield (
            "startingOffsets=committed needs group.id",
            "set group.id to the consumer group whose committed offsets are the start.",
        )
    if options.value_format is ValueFormat.RAW and (
        options.on_bad_record is not OnBadRecord.FAIL
        or options.on_tombstone is not None
        or options.skip_bytes
    ):
        yield (
            "json.on_error, json.on_tombstone and json.skip_bytes need value.format=json",
            "remove them, or set value.format=json.",
        )
