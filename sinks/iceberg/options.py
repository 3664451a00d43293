"""The options of the sink, parsed once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from twophase.errors import ConfigError
from twophase.options.parsing import Names, Options, parse_names
from twophase.options.references import secret_of

_FORMS = (
    "`sqlite:////folder/catalog.db`, `mysql://user@host:3306/schema`, `thrift://host:9083` of a "
    "Hive metastore, or `https://host/path` of a REST catalog"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BY_REFERENCE = "name a secret by reference: token_env, token_file, credential_env, credential_file"
_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
_METASTORE = re.compile(r"thrift://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")
_LONGEST_NAME = 255
"""Of a folder, in bytes."""
_LONGEST_IN_HIVE = 128
"""Of databases, and of tables in the metastore's own table of locks."""
_NOT_IN_HIVE = re.compile(r"[^A-Za-z0-9_]")

_TRANSFORM = re.compile(
    r"(?:(?P<plain>year|month|day|hour|void|identity)|(?P<sized>bucket|truncate)\[(?P<size>\d{1,9})\])"
    r"\((?P<of>.+)\)",
    re.DOTALL,
)


class CatalogKind(StrEnum):
    """What a catalog is reached by."""

    SQL = "sql"
    HIVE = "hive"
    REST = "rest"


_KINDS = {
    "sqlite": CatalogKind.SQL,
    "mysql": CatalogKind.SQL,
    "thrift": CatalogKind.HIVE,
    "http": CatalogKind.REST,
    "https": CatalogKind.REST,
}
_OF_KIND = {
    CatalogKind.REST: (
        "token_env", "token_file", "credential_env", "credential_file", "oauth2_server_uri",
        "scope", "prefix", "headers", "tls_ca",
    ),
    CatalogKind.SQL: ("password_env", "password_file", "tls_ca"),
}  # fmt: skip
"""The options that one kind of catalog has."""


class SchemaChange(StrEnum):
    """What a start does about columns of the rows that the table lacks."""

    REFUSE = "refuse"
    ADD_COLUMNS = "add_columns"


class IcebergOptions(Options):
    """The options of `IcebergSink`."""

    catalog_uri: str = Field(
        min_length=1,
        description="where the catalog is, without a password: `sqlite:////folder/catalog.db`, "
        "`mysql://user@host:3306/schema`, `thrift://host:9083` of a Hive metastore, or "
        "`https://host/path` of a REST catalog, without its `/v1`",
    )
    catalog: str = Field(
        default="default",
        min_length=1,
        description="name of the catalog in a database, which its readers use too",
    )
    table: str = Field(min_length=1, description="namespace and name, such as `shop.orders`")
    password_env: str | None = Field(
        default=None,
        min_length=1,
        description="environment variable, on the driver, that holds the password of a database; "
        "or",
    )
    password_file: str | None = Field(
        default=None,
        min_length=1,
        description="file, on the driver, that holds it; read again for each login",
    )
    token_env: str | None = Field(
        default=None,
        min_length=1,
        description="of a REST catalog: environment variable with a bearer token; or",
    )
    token_file: str | None = Field(
        default=None,
        min_length=1,
        description="file with it, read again for each request; or",
    )
    credential_env: str | None = Field(
        default=None,
        min_length=1,
        description="environment variable with `client_id:client_secret`, for which the driver "
        "gets tokens (OAuth2 client credentials); or",
    )
    credential_file: str | None = Field(default=None, min_length=1, description="file with it")
    oauth2_server_uri: str | None = Field(
        default=None,
        min_length=1,
        description="where tokens come from; without it `v1/oauth/tokens` of the catalog",
    )
    scope: str | None = Field(
        default=None, min_length=1, description="OAuth2 scope to ask for; without it `catalog`"
    )
    prefix: str | None = Field(
        default=None,
        min_length=1,
        description="of a REST catalog: part of its paths after `/v1`, if the server does not say",
    )
    headers: Names = Field(
        default=(),
        description="of a REST catalog: headers of each request, such as `X-Tenant: shop`; no "
        "secrets",
    )
    tls_ca: str | None = Field(
        default=None,
        min_length=1,
        description="of MySQL or a REST catalog: file, on the driver, of certificate authorities, "
        "PEM; without it MySQL's certificate is not checked, and a REST catalog's is by the "
        "authorities that requests trusts",
    )
    create: bool = Field(
        default=False,
        description="create the table, its namespace and the catalog's tables from the rows' "
        "columns if they do not exist",
    )
    warehouse: str | None = Field(
        default=None,
        min_length=1,
        description="folder of new tables, absolute; of a Hive metastore that of new namespaces; "
        "of a REST catalog the name by which it knows the warehouse",
    )
    partition_by: Names = Field(
        default=(),
        description="partition fields of a new table: a column, or a transform of one, such as "
        "`day(at)`, with `year`, `month`, `day`, `hour`, `bucket[N]` or `truncate[N]`; an existing "
        "one must have exactly these",
    )
    schema_change: SchemaChange = Field(
        default=SchemaChange.REFUSE,
        description="what a start does about columns of the rows that the table lacks: refuse them "
        "by name, or add them as optional columns",
    )
    branch: str = Field(
        default="main",
        min_length=1,
        description="branch of the table that rows go to; created with `create` if it is missing",
    )
    format_version: int = Field(
        default=2,
        ge=1,
        le=2,
        description="of a new table: version of Iceberg's table format, 1 or 2",
    )

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str) -> Self:
        """See `Options.parse`. First refuses what may be a secret, before anything shows it."""
        for key in ("catalog_uri", "oauth2_server_uri"):
            uri = options.get(key)
            if isinstance(uri, str) and re.search(r"//[^/@]*:[^/@]*@", uri):
                raise ConfigError(
                    f"{where}: option {key!r} contains a password. It is not shown here.",
                    remedy=_without_password(uri),
                )
        for header in parse_headers(options.get("headers")):
            name, colon, value = header.partition(":")
            if not (colon and _HEADER.fullmatch(name) and _VALUE.fullmatch(value.strip())):
                raise ConfigError(
                    f"{where}: option 'headers' has an entry that is not a header. It is not "
                    "shown here.",
                    remedy="write each as `Name: value`.",
                )
            if name.lower() in _SECRET_HEADERS:
                raise ConfigError(
                    f"{where}: option 'headers' has the header {name!r}, which is a secret. Its "
                    "value is not shown here.",
                    remedy=f"leave it out and {_BY_REFERENCE}.",
                )
        return super().parse(options, where)

    @field_validator("catalog_uri")
    @classmethod
    def _uri(cls, value: str) -> str:
        parts = urlsplit(value)
        kind = _KINDS.get(parts.scheme)
        if kind is None:
            raise ValueError(f"give {_FORMS}; other catalogs are not supported yet")
        if parts.scheme == "sqlite" and not value.startswith("sqlite:////"):
            raise ValueError("give an absolute path, with four slashes: sqlite:////folder/file.db")
        if "?" in value or "#" in value:
            raise ValueError("a URI has no parameters here")
        if kind is CatalogKind.HIVE and not _METASTORE.fullmatch(value):
            raise ValueError("give thrift://host:port of one metastore")
        if kind is CatalogKind.REST and (not parts.hostname or "@" in parts.netloc):
            raise ValueError("give https://host/path, without a user")
        return value

    @field_validator("oauth2_server_uri")
    @classmethod
    def _tokens(cls, value: str | None) -> str | None:
        if value is not None and not is_private(value):
            raise ValueError("give an https:// URL (http:// only of this machine) without a user")
        return value

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        if not all(value.split(".")) or "." not in value:
            raise ValueError("give namespace and name, such as shop.orders")
        return value

    @field_validator("partition_by")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value) or not all(value):
            raise ValueError("name each partition field once")
        return value

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.password_env and self.password_file:
            raise ValueError("give password_env or password_file, not both")
        is_sql = self.kind is CatalogKind.SQL
        if self.create and is_sql and self.warehouse is None:
            raise ValueError("create requires warehouse, the folder of new tables")
        if self.kind is not CatalogKind.REST and re.match("file://[^/]", self.warehouse or ""):
            raise ValueError("give warehouse without a host, as in file:///lake")
        named = {name for names in _OF_KIND.values() for name in names if getattr(self, name)}
        own = {*_OF_KIND.get(self.kind, ())} - ({"tls_ca"} if self.database else set())
        if foreign := sorted(named - own):
            raise ValueError(f"{foreign[0]} is of another kind of catalog than catalog_uri names")
        secrets = ("token_env", "token_file", "credential_env", "credential_file")
        given = [name for name in secrets if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(given)}")
        if given and not is_private(self.catalog_uri):
            raise ValueError(
                f"{given[0]} requires https:// in catalog_uri (http:// only of this "
                "machine): others could read it on its way"
            )
        if self.kind is CatalogKind.HIVE and self.table.count(".") != 1:
            raise ValueError("a table of a Hive metastore has one namespace: shop.orders")
        self._check_names()
        return self

    def _check_names(self) -> None:
        """Check what a catalog, and the folder of a new table, make of the names in `table`."""
        namespace, _, name = self.table.rpartition(".")
        blank = [part for part in namespace.split(".") if part != part.strip()]
        if self.kind is CatalogKind.SQL and blank:
            raise ValueError(
                f"the namespace {blank[0]!r} in table begins or ends with a blank, which the "
                "catalog leaves out: leave it out here too"
            )
        for part in (namespace, name) if self.create else ():
            if reason := self._reason_against(part):
                raise ValueError(
                    f"the name {part!r} in table {reason}: name the table otherwise; or leave "
                    "create out, if it exists or another engine creates it, with a location"
                )

    def _reason_against(self, name: str) -> str:
        """Return why a catalog may not take the name of a new table, or no folder, or one in that
        of another table, would have it.
        """
        if self.kind is CatalogKind.HIVE:
            return _reason_in_hive(name)
        is_plain = self.kind is CatalogKind.SQL and str(self.warehouse).startswith("/")
        unfit = [mark for mark in ("/\0" if is_plain else "/\0?#") if mark in name]
        if unfit:
            return f"has {unfit[0]!r}, and create makes a folder of it"
        if len(name.encode()) > _LONGEST_NAME:
            return f"is longer than {_LONGEST_NAME} bytes, and create makes a folder of it"
        return ""

    @property
    def kind(self) -> CatalogKind:
        """What the catalog is reached by."""
        return _KINDS[urlsplit(self.catalog_uri).scheme]

    @property
    def database(self) -> Path | None:
        """The file of an SQLite catalog; None for a server."""
        path = self.catalog_uri.removeprefix("sqlite:///")
        return Path(path) if path != self.catalog_uri else None

    @property
    def where(self) -> str:
        """The table and its catalog, for messages."""
        return f"{self.table} in {self.catalog_uri}"

    def password(self) -> str:
        """Return the password of a database; empty if there is none. Driver only.

        Raises:
            ConfigError: it cannot be read.
        """
        return self._secret("password")

    def token(self) -> str:
        """Return the bearer token of a REST catalog; see `password`.

        Raises:
            ConfigError: it cannot be read, or sent.
        """
        found = self._secret("token")
        if not _VALUE.fullmatch(found):
            raise ConfigError(
                f"The token that {'token_env' if self.token_env else 'token_file'} names has "
                "characters that no header can have, such as the end of a line. It is not shown "
                "here.",
                remedy="leave nothing but the token there, in one line.",
            )
        return found

    def credential(self) -> str:
        """Return the client's id and secret at a REST catalog; see `password`."""
        return self._secret("credential")

    def header_items(self) -> list[tuple[str, str]]:
        """Return name and value of each header."""
        split = (header.partition(":") for header in self.headers)
        return [(name, value.strip()) for name, _, value in split]

    def _secret(self, kind: str) -> str:
        return secret_of(kind, getattr(self, f"{kind}_env"), getattr(self, f"{kind}_file"))


def _reason_in_hive(name: str) -> str:
    if odd := _NOT_IN_HIVE.search(name):
        return (
            f"has {odd[0]!r}, and not every metastore takes more than ASCII letters, digits and _"
        )
    is_long = len(name) > _LONGEST_IN_HIVE
    return f"is longer than {_LONGEST_IN_HIVE} letters, which a metastore keeps" if is_long else ""


def _without_password(uri: str) -> str:
    """Return what to do about a URI with a password: only a database is told one by an option."""
    kind = _KINDS.get(urlsplit(uri).scheme)
    if kind is CatalogKind.REST:
        remedy = f"leave user and password out of the URI and {_BY_REFERENCE}."
    elif kind is CatalogKind.HIVE:
        remedy = "leave user and password out of the URI: a metastore is not told them."
    else:
        remedy = "leave it out of the URI and name it by reference: password_env or password_file."
    return remedy


def parse_headers(value: object) -> list[str]:
    """Return the headers in an option, checked or not."""
    found = parse_names(value)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list | tuple) else []


def is_private(uri: str) -> bool:
    """Return whether a secret can be sent to a URL: nobody can read it on its way."""
    url = urlsplit(uri)
    is_safe = url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOOPBACK)
    return is_safe and bool(url.hostname) and "@" not in url.netloc and not url.fragment


def partition_field(text: str) -> tuple[str, str]:
    """Return column and transform of a partition field, as Iceberg names the transform.

    `day(at)` is the day of column `at`; a text in no such form is a column's name.
    """
    found = _TRANSFORM.fullmatch(text)
    if found is None:
        return text, "identity"
    return found["of"], found["plain"] or f"{found['sized']}[{found['size']}]"
