"""A file that is durable once it is closed: what lake formats write beside the data files."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from twophase.sinks.common.staging.disk import sync


class SyncedStream:
    """A file being written; closing it makes its bytes and its name durable.

    Args:
        path: its name.
        replaces: whether a file may be there, which is emptied.
    """

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        self._path = path
        self._file = path.open("wb" if replaces else "xb")

    def write(self, data: bytes) -> int:
        """Append."""
        return self._file.write(data)

    def tell(self) -> int:
        """Return how many bytes it has."""
        return self._file.tell()

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._file.closed

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
