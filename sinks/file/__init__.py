"""The file sink: Parquet and other formats in a folder."""

from typing import TYPE_CHECKING

from twophase.exports import export

if TYPE_CHECKING:
    from twophase.sinks.file.sink import FileSink as FileSink

export(
    __name__,
    {
        "twophase.sinks.file.sink": ["FileSink"],
    },
)
