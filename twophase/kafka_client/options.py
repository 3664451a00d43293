"""The options of a connection to Kafka: brokers, TLS, SASL.

Only options listed here are passed on to a Kafka client: in other products, an open pass-through
has let configuration run code, read files and reach other hosts (CVE-2023-25194, CVE-2024-31141,
CVE-2025-27817). Secrets are named, not given: an option holds the name of an environment variable
or a file, which is read when a connection is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from twophase.errors import ConfigError
from twophase.kafka_client.other_names import ALIASES, WAY_ON, as_written, with_our_names
from twophase.options.parsing import Duration, Options, in_words_of_user

_SERVER = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}"
_SERVERS = re.compile(f"{_SERVER}(,{_SERVER})*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class IsolationLevel(StrEnum):
    """Kafka's isolation level: excludes or includes records of open and aborted transactions."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


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


def _parse_servers(value: object) -> object:
    """Check that a text names servers; leave out the white space."""
    text = re.sub(r"\s", "", value) if isinstance(value, str) else value
    if isinstance(text, str) and not _SERVERS.fullmatch(text):
        raise ValueError("give HOST:PORT, or several separated by commas")
    return text


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
    """How to reach the brokers: what the source and the sink have in common.

    Attributes:
        whose: what the options belong to; how errors of them begin.
    """

    whose: ClassVar[str] = "Kafka"

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
    def parse(cls, options: Mapping[str, Any], where: str = "") -> Self:
        """Check `options`; see `Options.parse`.

        Args:
            options: as the user wrote them.
            where: what they belong to, for errors; `whose` if it is empty.

        Raises:
            ConfigError: a key is unknown or not supported, a value is not allowed, or two options
                do not go together.
        """
        where = where or cls.whose
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
