"""Local files of a table, durable before a snapshot names them, and never replaced.

pypaimon's own file access leaves metadata in the page cache, and its rename looks whether a name is
free before it takes it: two processes can take the same one, and the second replaces the snapshot
of the first.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from types import TracebackType

from pypaimon.filesystem.local_file_io import LocalFileIO

from twophase.sinks.common.staging.disk import rename_new, sync


class SyncedFileIO(LocalFileIO):  # type: ignore[misc]  # pypaimon has no types here
    """Reads as pypaimon does, and syncs what it writes."""

    def new_output_stream(self, path: str) -> SyncedStream:
        """See `FileIO.new_output_stream`."""
        found: Path = self._to_file(path)
        make_folder(found.parent)
        return SyncedStream(found)

    def try_to_write_atomic(self, path: str, content: str) -> bool:
        """Write a new file, which is there whole and durably, or not at all.

        Returns:
            Whether it was written; False if the name is taken.

        Raises:
            OSError: whether it was written is unknown.
        """
        found: Path = self._to_file(path)
        make_folder(found.parent)
        temporary = found.with_name(f".{found.name}.{uuid.uuid4()}.tmp")
        try:
            with SyncedStream(temporary) as file:
                file.write(content.encode())
            rename_new(temporary, found)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        sync(found.parent)
        return True


class SyncedStream:
    """A file being written; closing it makes its bytes and its name durable.

    Args:
        path: its name; must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, data: bytes) -> int:
        """Append."""
        return self._file.write(data)

    def close(self) -> None:
        """Sync and close."""
        if not self._file.closed:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            sync(self._path.parent)

    def __enter__(self) -> SyncedStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def make_folder(path: Path) -> None:
    """Create a folder and those above it, each durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)
