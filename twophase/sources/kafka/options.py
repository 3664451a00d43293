"""The options of the source `twophase-kafka`.

Only options listed here are passed on to a Kafka client: in other products, an open pass-through
has let configuration run code, read files and reach other hosts (CVE-2023-25194, CVE-2024-31141,
CVE-2025-27817). Secrets are named, not given: an option holds the name of an environment variable
or a file, which is read when a connection is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from twophase.errors import ConfigError
from twophase.ids import check_name
from twophase.options.parsing import Duration, Options, in_words_of_user
from twophase.sources.kafka.offsets import WHERE
from twophase.sources.kafka.other_names import (
    ALIASES,
    WAY_ON,
    as_written,
    with_our_names,
)
from twophase.sources.kafka.starting import (
    Committed,
    Earliest,
    Fallback,
    Starting,
    parse_starting,
)

RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_SERVER = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}"
_SERVERS = re.compile(f"{_SERVER}(,{_SERVER})*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class ValueFormat(StrEnum):
    """The format of the rows: the record as it is, or its value parsed into the schema."""

    RAW = "raw"
    JSON = "json"


class OnBadRecord(StrEnum):
    """The handling of a record that does not fit the schema."""

    FAIL = "fail"
    DROP = "drop"


class IsolationLevel(StrEnum):
    """Kafka's isolation level: excludes or includes records of open and aborted transactions."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class FetchEngine(StrEnum):
    """The client that fetches on the executors; `auto` is librdkafka if it is installed."""

    AUTO = "auto"
    KAFKA_PYTHON = "kafka-python"
    LIBRDKAFKA = "librdkafka"


class SecurityProtocol(StrEnum):
    """Kafka's security protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class SaslMechanism(StrEnum):
    """The SASL mechanism by which the client authenticates."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


def _parse_names(value: object) -> object:
    """Split a text into its names."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _parse_topics(value: object) -> object:
    """Split a text into names of topics, each once."""
    topics = _parse_names(value)
    if isinstance(topics, tuple):
        bad = [topic for topic in topics if not _TOPIC.fullmatch(topic)]
        if bad or not topics:
            wrong = bad[0] if bad else ""
            raise ValueError(f"give topic names separated by commas; {wrong!r} is not a topic name")
        return tuple(dict.fromkeys(topics))
    return topics


def _parse_servers(value: object) -> object:
    """Check that a text names servers; leave out the white space."""
    text = re.sub(r"\s", "", value) if isinstance(value, str) else value
    if isinstance(text, str) and not _SERVERS.fullmatch(text):
        raise ValueError("give HOST:PORT, or several separated by commas")
    return text


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


def _check_endpoint(value: object) -> object:
    """Check that the client's secret can be sent to a URL."""
    if isinstance(value, str):
        url = urlsplit(value)
        is_safe = url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOOPBACK)
        if not (is_safe and url.hostname) or "@" in url.netloc or url.fragment:
            raise ValueError("give an https:// URL (http:// only of this machine) without a user")
    return value


Conflict = tuple[str, str]
"""The problem, and its remedy."""


class ConnectionOptions(Options):
    """How to reach the brokers: what the source and the sink have in common."""

    bootstrap_servers: Annotated[str, BeforeValidator(_parse_servers)] = Field(
        alias="kafka.bootstrap.servers", description="`host:port`, several separated by commas"
    )
    request_timeout_s: Duration = Field(
        default=30.0,
        alias="request.timeout",
        ge=1,
        le=300,
        description="for each request to a broker, repetitions included",
    )
    security_protocol: SecurityProtocol = Field(
        default=SecurityProtocol.PLAINTEXT,
        alias="kafka.security.protocol",
        description="Kafka's security protocol",
    )
    ssl_ca: str | None = Field(
        default=None,
        alias="kafka.ssl.ca.location",
        min_length=1,
        description="certificate authority, PEM. Certificate and host name are always verified",
        json_schema_extra={"default": "the system's"},
    )
    ssl_certificate: str | None = Field(
        default=None,
        alias="kafka.ssl.certificate.location",
        min_length=1,
        description="client certificate, PEM",
    )
    ssl_key: str | None = Field(
        default=None,
        alias="kafka.ssl.key.location",
        min_length=1,
        description="the key of the client certificate, PEM",
    )
    ssl_key_password_env: str | None = Field(
        default=None,
        alias="kafka.ssl.key.password.env",
        min_length=1,
        description="environment variable with the key's password, "
        "on the driver and on every executor; or",
    )
    ssl_key_password_file: str | None = Field(
        default=None, alias="kafka.ssl.key.password.file", min_length=1, description="file with it"
    )
    sasl_mechanism: SaslMechanism | None = Field(
        default=None, alias="kafka.sasl.mechanism", description="how the client authenticates"
    )
    sasl_username: str | None = Field(
        default=None,
        alias="kafka.sasl.username",
        min_length=1,
        description="the account; of `OAUTHBEARER` the client's id",
    )
    sasl_password_env: str | None = Field(
        default=None,
        alias="kafka.sasl.password.env",
        min_length=1,
        description="environment variable with the password, or the client's secret, "
        "on the driver and on every executor; or",
    )
    sasl_password_file: str | None = Field(
        default=None, alias="kafka.sasl.password.file", min_length=1, description="file with it"
    )
    oauth_url: Annotated[str | None, BeforeValidator(_check_endpoint)] = Field(
        default=None,
        alias="kafka.sasl.oauthbearer.token.endpoint.url",
        description="of `OAUTHBEARER`: where the driver and every executor get their tokens, "
        "by client credentials",
    )
    oauth_scope: str | None = Field(
        default=None,
        alias="kafka.sasl.oauthbearer.scope",
        min_length=1,
        description="of `OAUTHBEARER`: the scope to ask for",
    )

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str = WHERE) -> Self:
        """Check `options`; see `Options.parse`.

        Raises:
            ConfigError: a key is unknown or not supported, a value is not allowed, or two options
                do not go together.
        """
        ours, written = with_our_names(options, cls.keys(), where), as_written(options, cls.keys())
        parsed = cls.validated(ours, where, written)
        for problem, remedy in (*parsed.conflicts(), *_security_conflicts(parsed)):
            raise ConfigError(
                f"{where}: {in_words_of_user(problem, written)}.",
                remedy=in_words_of_user(remedy, written),
            )
        return parsed

    @classmethod
    def other_keys(cls) -> list[str]:
        """See `Options.other_keys`."""
        return [*ALIASES]

    def conflicts(self) -> Iterator[Conflict]:
        """Yield what does not go together, beside the options of this class."""
        yield from ()

    @property
    def tls(self) -> bool:
        """True if the connection to the brokers uses TLS."""
        return self.security_protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        """True if the client authenticates by SASL."""
        return self.security_protocol in (
            SecurityProtocol.SASL_PLAINTEXT,
            SecurityProtocol.SASL_SSL,
        )


class KafkaOptions(ConnectionOptions):
    """The options, as in docs/kafka.md. Keys are compared without regard to case, as Spark does;
    those of Spark's own source: `twophase.sources.kafka.other_names`.
    """

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
    def parse(cls, options: Mapping[str, Any], where: str = WHERE) -> Self:
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


def _security_conflicts(options: ConnectionOptions) -> Iterator[Conflict]:
    protocol = f"kafka.security.protocol={options.security_protocol}"
    passwords = (options.sasl_password_env, options.sasl_password_file)
    keys = (options.ssl_key_password_env, options.ssl_key_password_file)
    account = (options.sasl_mechanism, options.sasl_username, any(passwords))
    if not options.tls and any((options.ssl_ca, options.ssl_certificate, options.ssl_key, *keys)):
        yield (
            f"kafka.ssl.* options with {protocol}",
            "set kafka.security.protocol to SSL or SASL_SSL.",
        )
    if (options.ssl_certificate is None) != (options.ssl_key is None):
        yield (
            "kafka.ssl.certificate.location and kafka.ssl.key.location go together",
            "give both, or neither.",
        )
    if not options.sasl and any(account):
        yield (
            f"kafka.sasl.* options with {protocol}",
            "set kafka.security.protocol to SASL_SSL or SASL_PLAINTEXT.",
        )
    if options.sasl and not all(account):
        yield (
            f"{protocol} needs mechanism, user name and password",
            "set kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password.env (or .file)."
            + (" If it is GSSAPI, as Java's client assumes: " + WAY_ON) * (not account[0]),
        )
    is_oauth = options.sasl_mechanism is SaslMechanism.OAUTHBEARER
    if is_oauth and options.oauth_url is None:
        yield (
            "kafka.sasl.mechanism=OAUTHBEARER needs a token endpoint",
            "set kafka.sasl.oauthbearer.token.endpoint.url.",
        )
    if not is_oauth and (options.oauth_url or options.oauth_scope):
        yield (
            "kafka.sasl.oauthbearer.* options without kafka.sasl.mechanism=OAUTHBEARER",
            "set kafka.sasl.mechanism to OAUTHBEARER, or remove them.",
        )
    if all(passwords) or all(keys):
        yield "a password is named twice, by .env and by .file", "keep one of the two."
