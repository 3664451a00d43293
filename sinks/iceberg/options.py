"""The options of the sink, parsed once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from twophase.errors import ConfigError
from twophase.internals.redaction import shown_variable
from twophase.options.parsing import Names, Options

_FORM = "`sqlite:////folder/catalog.db` or `mysql://user@host:3306/schema`"
_SCHEMES = ("sqlite", "mysql")
_TRANSFORM = re.compile(
    r"(?:(?P<plain>year|month|day|hour|void|identity)|(?P<sized>bucket|truncate)\[(?P<size>\d{1,9})\])"
    r"\((?P<of>.+)\)",
    re.DOTALL,
)


class SchemaChange(StrEnum):
    """What a start does about columns of the rows that the table lacks."""

    REFUSE = "refuse"
    ADD_COLUMNS = "add_columns"


class IcebergOptions(Options):
    """The options of `IcebergSink`."""

    catalog_uri: str = Field(
        min_length=1,
        description="database of the catalog, without a password: "
        "`sqlite:////folder/catalog.db` or `mysql://user@host:3306/schema`",
    )
    catalog: str = Field(
        default="default",
        min_length=1,
        description="name of the catalog in that database, which its readers use too",
    )
    table: str = Field(min_length=1, description="namespace and name, such as `shop.orders`")
    password_env: str | None = Field(
        default=None,
        min_length=1,
        description="environment variable, on the driver, that holds the password; or",
    )
    password_file: str | None = Field(
        default=None, min_length=1, description="file, on the driver, that holds it"
    )
    create: bool = Field(
        default=False,
        description="create the table, its namespace and the catalog's tables from the rows' "
        "columns if they do not exist",
    )
    warehouse: str | None = Field(
        default=None, min_length=1, description="folder of new tables, absolute"
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
        """See `Options.parse`. First refuses a URI with a password, before anything shows it."""
        uri = options.get("catalog_uri")
        if isinstance(uri, str) and re.search(r"//[^/@]*:[^/@]*@", uri):
            raise ConfigError(
                f"{where}: option 'catalog_uri' contains a password. It is not shown here.",
                remedy="leave it out of the URI and name it by reference: "
                "password_env or password_file.",
            )
        return super().parse(options, where)

    @field_validator("catalog_uri")
    @classmethod
    def _uri(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in _SCHEMES:
            raise ValueError(f"give {_FORM}; other catalogs are not supported yet")
        if parts.scheme == "sqlite" and not value.startswith("sqlite:////"):
            raise ValueError("give an absolute path, with four slashes: sqlite:////folder/file.db")
        if "?" in value or "#" in value:
            raise ValueError("a URI has no parameters here")
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
        if self.create and self.warehouse is None:
            raise ValueError("create requires warehouse, the folder of new tables")
        return self

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
        """Return the password; empty if there is none. Driver only.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.password_env:
            if (found := os.environ.get(self.password_env)) is not None:
                return found
            raise ConfigError(
                f"The environment variable {shown_variable(self.password_env)}, named by "
                "password_env, is not set.",
                remedy="set it where the driver runs.",
            )
        if self.password_file:
            try:
                return Path(self.password_file).read_text().removesuffix("\n").removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"The file {self.password_file!r}, named by password_file, cannot be read: "
                    f"{type(error).__name__}.",
                    remedy="give a file with the password that the driver may read.",
                ) from None
        return ""


def partition_field(text: str) -> tuple[str, str]:
    """Return column and transform of a partition field, as Iceberg names the transform.

    `day(at)` is the day of column `at`; a text in no such form is a column's name.
    """
    found = _TRANSFORM.fullmatch(text)
    if found is None:
        return text, "identity"
    return found["of"], found["plain"] or f"{found['sized']}[{found['size']}]"
