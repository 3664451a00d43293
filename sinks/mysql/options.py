"""The options of the sink, parsed once, and the endpoint of its connections."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from twophase.errors import ConfigError
from twophase.options.parsing import Duration, Options
from twophase.options.references import authorities_in, read_certificates, read_secret, secret_of
from twophase.sinks.mysql.client.identifiers import quote

_DEFAULT_PORT = 3306
_URL_FORM = "mysql://user@host:3306/schema"
_BY_REFERENCE = (
    "leave the password out of the URL and name it by reference: password_env or password_file."
)


class Protocol(StrEnum):
    """The protocol by which rows are pre-committed."""

    AUTO = "auto"
    XA = "xa"


class Tls(StrEnum):
    """The authentication of the server by TLS."""

    VERIFY_IDENTITY = "verify_identity"
    VERIFY_CA = "verify_ca"
    INSECURE = "insecure"
    OFF = "off"


class Load(StrEnum):
    """The statement that sends the rows."""

    AUTO = "auto"
    LOCAL = "local"
    INSERT = "insert"


class Replaceable:
    """A password, or certificates, that somebody may replace while the job runs. It appears in no
    representation and no error.

    Args:
        value: as it is now.
        file: its name, for messages; empty if there is none.
        read: how the driver reads the file again, for each login and for the tasks of each attempt;
            None: the value stays.
    """

    def __init__(
        self, value: str, file: str = "", read: Callable[[Path], str] | None = None
    ) -> None:
        self.file = file
        self._value = value
        self._read = read

    def reveal(self) -> str:
        """The value itself, for the handshake only."""
        if self._read is not None:
            with suppress(OSError, ValueError):  # while it is being replaced: the last one
                self._value = self._read(Path(self.file))
        return self._value

    def __reduce__(self) -> tuple[type[Replaceable], tuple[str, str]]:
        """The executors get what the driver reads now: the file may not be there."""
        return Replaceable, (self.reveal(), self.file)

    def __repr__(self) -> str:
        return "Replaceable(***)"


@dataclass(frozen=True)
class Endpoint:
    """The server, the account and the deadlines of a connection, also for the executors.

    Attributes:
        host: name or address.
        port: TCP port.
        user: account.
        schema: the target's schema.
        password: resolved on the driver.
        tls: how the server is authenticated.
        tls_ca: the authorities to trust; None: the system's.
        unix_socket: path of a socket, used instead of host and port.
        connect_timeout_s: deadline of a connection attempt, handshake included.
        io_timeout_s: deadline of one wait for the server.
        lock_wait_timeout_s: how long a statement waits for a row or table lock; whole seconds.
        server_uuid: the id of the server that the driver has fenced, which a writer's session must
            match; None on the driver, and if the server has none.
        opened: whether the sink is open: what the server refuses from then on may pass.
    """

    host: str
    port: int
    user: str
    schema: str
    password: Replaceable
    tls: Tls
    tls_ca: Replaceable | None = None
    unix_socket: str | None = None
    connect_timeout_s: float = 10.0
    io_timeout_s: float = 120.0
    lock_wait_timeout_s: int = 5
    server_uuid: str | None = None
    opened: bool = False

    def __str__(self) -> str:
        return f"{self.user}@{self.unix_socket or f'{self.host}:{self.port}'}"


class MySqlOptions(Options):
    """The options of `MySqlSink`."""

    url: str = Field(
        min_length=1,
        description="`mysql://user@host:port/schema`, without a password; "
        "port 3306 if none is given",
    )
    table: str = Field(min_length=1, description="the target table in that schema")
    protocol: Protocol = Field(
        default=Protocol.AUTO, description="`xa`, or `auto`, which is `xa` today"
    )
    password_env: str | None = Field(
        default=None,
        min_length=1,
        description="environment variable, on the driver, that holds the password; or",
    )
    password_file: str | None = Field(
        default=None,
        min_length=1,
        description="file, on the driver, that holds it; read again for each login",
    )
    tls: Tls | None = Field(
        default=None,
        description="how the server is authenticated",
        json_schema_extra={"default": "`verify_identity`, `off` for a local server"},
    )
    tls_ca: str | None = Field(
        default=None,
        min_length=1,
        description="file, on the driver, with the certificates of the authorities to trust; read "
        "again for each login",
        json_schema_extra={"default": "the system's"},
    )
    unix_socket: str | None = Field(
        default=None,
        min_length=1,
        description="path of the server's socket; the executors must see it too",
    )
    bookkeeping_schema: str | None = Field(
        default=None,
        min_length=1,
        description="schema of the sink's own tables",
        json_schema_extra={"default": "the table's"},
    )
    checkpoint_column: str | None = Field(
        default=None,
        min_length=1,
        description="a VARCHAR column of the table in which the sink names each row's checkpoint: "
        "only then can a restore take rows back "
        "(see Rewind)",
    )
    load: Load = Field(
        default=Load.AUTO,
        description="`local` (LOAD DATA LOCAL), `insert`, or `auto`: "
        "local where the server allows it",
    )
    load_rows: int = Field(
        default=50_000,
        ge=1,
        le=1_000_000,
        description="rows in one statement, or in one transaction of a rewind, at the most",
    )
    load_bytes: int = Field(
        default=8_000_000,
        ge=1_000,
        le=256_000_000,
        description="bytes in one statement, roughly; also bounds a writer's memory",
    )
    lock_wait_timeout_s: Duration = Field(
        default=5.0,
        alias="lock_wait_timeout",
        ge=1,
        le=3600,
        description="how long a statement waits for a lock before the attempt is declined",
    )
    fence_timeout_s: Duration = Field(
        default=60.0,
        alias="fence_timeout",
        gt=0,
        description="how long recovery waits for sessions of older attempts to end",
    )
    connect_timeout_s: Duration = Field(
        default=10.0,
        alias="connect_timeout",
        gt=0,
        le=86_400,
        description="deadline of a connection attempt",
    )
    io_timeout_s: Duration = Field(
        default=120.0,
        alias="io_timeout",
        gt=0,
        le=86_400,
        description="deadline of one wait for the server; longer than `lock_wait_timeout`",
    )
    allow_unsafe_durability: bool = Field(
        default=False, description="accept a server that may lose what it has acknowledged"
    )

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str) -> Self:
        """See `Options.parse`. First refuses a URL with a password, before anything shows it."""
        url = options.get("url")
        if isinstance(url, str):
            _refuse_secrets(url, where)
        return super().parse(options, where)

    @field_validator("protocol", mode="before")
    @classmethod
    def _protocol(cls, value: object) -> object:
        if value == "staged":
            raise ValueError("the staged protocol is not available yet; use 'xa'")
        return value

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        _split(value)
        return value

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        quote(self.table)
        quote(self.schema_name)
        quote(self.metadata_schema)
        if self.checkpoint_column is not None:
            quote(self.checkpoint_column)
        if self.password_env and self.password_file:
            raise ValueError("give password_env or password_file, not both")
        if self.io_timeout_s <= self.lock_wait_timeout_s:
            raise ValueError(
                "io_timeout must be longer than lock_wait_timeout, "
                "or a lock wait looks like a dead server"
            )
        return self

    @property
    def schema_name(self) -> str:
        """The target's schema."""
        return unquote(_split(self.url).path.removeprefix("/"))

    @property
    def metadata_schema(self) -> str:
        """The schema of the metadata tables."""
        return self.bookkeeping_schema or self.schema_name

    def endpoint(self) -> Endpoint:
        """Resolve the password and the TLS policy. Driver only.

        Raises:
            ConfigError: the referenced password cannot be read.
            PreflightError: nor can the certificates.
        """
        parts = _split(self.url)
        host = parts.hostname or ""
        local = self.unix_socket is not None or _is_loopback(host)
        tls = self.tls or (Tls.OFF if local else Tls.VERIFY_IDENTITY)
        return Endpoint(
            host=host,
            port=parts.port or _DEFAULT_PORT,
            user=unquote(parts.username or ""),
            schema=self.schema_name,
            password=self._password(),
            tls=tls,
            tls_ca=None if tls is Tls.OFF else self._authorities(),
            unix_socket=self.unix_socket,
            connect_timeout_s=self.connect_timeout_s,
            io_timeout_s=self.io_timeout_s,
            lock_wait_timeout_s=round(self.lock_wait_timeout_s),
        )

    def _password(self) -> Replaceable:
        password = secret_of("password", self.password_env, self.password_file)
        if not self.password_file:
            return Replaceable(password)
        return Replaceable(password, self.password_file, read_secret)

    def _authorities(self) -> Replaceable | None:
        if self.tls_ca is None:
            return None
        return Replaceable(authorities_in(self.tls_ca), self.tls_ca, read_certificates)


def _refuse_secrets(url: str, where: str) -> None:
    # Looser than the URL's grammar on purpose: a mistyped URL must not show its password either.
    account = url.rpartition("@")[0]
    if (
        ":" in re.sub(r"^\s*([\w+.-]+://|(mysql|mariadb):/*)", "", account)
        or "?" in url
        or "#" in url
    ):
        raise ConfigError(
            f"{where}: option 'url' contains a password, '?' or '#'. It is not shown here.",
            remedy=f"write {_URL_FORM}; {_BY_REFERENCE}",
        )


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        port_is_good = False
    path = unquote(parts.path.removeprefix("/"))
    if (
        parts.scheme not in ("mysql", "mariadb")
        or not parts.hostname
        or not parts.username
        or not port_is_good
        or not path
    ):
        raise ValueError(f"write it as {_URL_FORM}")
    if (
        parts.password is not None
        or parts.query
        or parts.fragment
        or "/" in parts.path.removeprefix("/")
    ):
        raise ValueError(f"write it as {_URL_FORM}; {_BY_REFERENCE}")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
