"""A file of Hadoop's file system for Python, which fetches only the parts that are read."""

from __future__ import annotations

import io
from typing import Any


class HadoopFile(io.RawIOBase):
    """Reads a file in parts.

    Args:
        stream: Hadoop's FSDataInputStream; closed with this object.
        size: the length of the file, in bytes.
        read_exactly: reads a number of bytes from a stream, or raises.
    """

    def __init__(self, stream: Any, size: int, read_exactly: Any) -> None:
        super().__init__()
        self._stream = stream
        self._size = size
        self._read_exactly = read_exactly
        self._position = 0

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def seekable(self) -> bool:
        """True: it can be read from any position."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, up to the end of the file."""
        length = max(0, min(len(buffer), self._size - self._position))
        if length:
            self._stream.seek(self._position)
            buffer[:length] = bytes(self._read_exactly(self._stream, length))
            self._position += length
        return length

    def close(self) -> None:
        """Close the stream."""
        if not self.closed:
            self._stream.close()
        super().close()
