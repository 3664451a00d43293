"""Local files of a table, durable before a commit names them.

pyiceberg's own file access leaves metadata in the page cache: after a power failure the catalog,
which syncs, would name files that are empty. Catalogs create this class by its name (`py-io-impl`).
"""

from __future__ import annotations

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from twophase.sinks.common.lake.synced_stream import SyncedStream
from twophase.sinks.common.staging.location import local_path

NAME = f"{__name__}.SyncedFileIO"


class SyncedFileIO(FileIO):
    """Reads as pyiceberg does, and syncs what it writes.

    Args:
        properties: of the catalog and the table.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._files = PyArrowFileIO(properties)

    def new_input(self, location: str) -> InputFile:
        """See `FileIO.new_input`."""
        return self._files.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO.new_output`."""
        return SyncedFile(location, self.new_input(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO.delete`."""
        self._files.delete(location)


class SyncedFile(OutputFile):
    """A file to be written.

    Args:
        location: its path or URI.
        reader: reads it.
    """

    def __init__(self, location: str, reader: InputFile) -> None:
        super().__init__(location)
        self._reader = reader

    def __len__(self) -> int:
        return len(self._reader)

    def exists(self) -> bool:
        """See `OutputFile.exists`."""
        return self._reader.exists()

    def to_input_file(self) -> InputFile:
        """See `OutputFile.to_input_file`."""
        return self._reader

    def create(self, overwrite: bool = False) -> OutputStream:
        """See `OutputFile.create`."""
        path = local_path(self.location, "location")
        path.parent.mkdir(parents=True, exist_ok=True)
        return SyncedStream(path, replaces=overwrite)
