"""The options of the sink, parsed once."""

from __future__ import annotations

from pydantic import Field, field_validator

from twophase.config import Names, Options
from twophase.sinks.common.staging.formats import Format


class FileOptions(Options):
    """The options of `FileSink`."""

    path: str = Field(min_length=1, description="folder of the table, absolute")
    format: Format = Field(default=Format.PARQUET, description="format of the files")
    partition_by: Names = Field(
        default=(),
        description="partition columns, from the outermost folder to the innermost: strings, "
        "integers, booleans, dates",
    )
    root: str | None = Field(
        default=None,
        min_length=1,
        description="`path` has to be this folder or inside it, even after links are followed",
    )

    @field_validator("partition_by")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len({name.lower() for name in value}) != len(value) or not all(value):
            raise ValueError("name each partition column once")
        return value
