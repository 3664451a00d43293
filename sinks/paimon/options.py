"""The options of the sink, parsed once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from twophase.options.parsing import Names, Options

_NAME = re.compile(r"[^./\\$`\0]+")


class PaimonOptions(Options):
    """The options of `PaimonSink`."""

    warehouse: str = Field(
        min_length=1, description="folder of a filesystem catalog, absolute, on a local file system"
    )
    table: str = Field(min_length=1, description="database and name, such as `shop.orders`")
    create: bool = Field(
        default=False,
        description="create the table and its database from the rows' columns if they do not exist",
    )
    partition_by: Names = Field(
        default=(),
        description="partition columns of a new table; an existing one must have exactly these",
    )

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        parts = value.split(".")
        if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
            raise ValueError(
                "give database and name, such as shop.orders; branches and system tables cannot "
                "be written"
            )
        return value

    @field_validator("partition_by")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value) or not all(value):
            raise ValueError("name each partition column once")
        return value

    @model_validator(mode="after")
    def _absolute(self) -> Self:
        if not self.warehouse.startswith(("/", "file:")):
            raise ValueError("warehouse: give an absolute path, such as /lake")
        return self

    @property
    def folder(self) -> Path:
        """The table's folder below the warehouse, as Paimon's filesystem catalog has it."""
        database, name = self.table.split(".")
        return Path(f"{database}.db", name)

    @property
    def where(self) -> str:
        """The table and its catalog, for messages."""
        return f"{self.table} in {self.warehouse}"
