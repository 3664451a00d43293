"""The options of the sink, parsed once."""

from __future__ import annotations

from pydantic import Field, field_validator

from twophase.config import Names, Options
from twophase.sinks.common.staging.formats import Format


class FileOptions(Options):
    """The options of `FileSink`.

    Attributes:
        path: folder of the table, absolute; created if the folder above it exists.
        format: format of the files.
        partition_by: partition columns, from the outermost folder to the innermost.
        root: `path` has to be this folder or inside it.
    """

    path: str = Field(min_length=1)
    format: Format = Format.PARQUET
    partition_by: Names = ()
    root: str | None = Field(default=None, min_length=1)

    @field_validator("partition_by")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len({name.lower() for name in value}) != len(value) or not all(value):
            raise ValueError("name each partition column once")
        return value
