"""The options of the sink, parsed once."""

from __future__ import annotations

from pydantic import Field

from twophase.options.parsing import Options, PartitionColumns
from twophase.sinks.common.staging.formats import Format


class FileOptions(Options):
    """The options of `FileSink`."""

    path: str = Field(min_length=1, description="folder of the table, absolute")
    format: Format = Field(default=Format.PARQUET, description="format of the files")
    partition_by: PartitionColumns = Field(
        default=(),
        description="partition columns, from the outermost folder to the innermost: strings, "
        "integers, booleans, dates",
    )
    root: str | None = Field(
        default=None,
        min_length=1,
        description="`path` has to be this folder or inside it, even after links are followed",
    )
