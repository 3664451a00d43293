"""The file sink: Parquet and other formats in a folder."""

from typing import TYPE_CHECKING

from twophase.exports import lazy_exports

if TYPE_CHECKING:
    from twophase.sinks.file.sink import FileSink

__all__ = ["FileSink"]

__getattr__, __dir__ = lazy_exports(__name__, {"FileSink": "twophase.sinks.file.sink"})
