"""The table's storage through Hadoop's file system, so that it works wherever Delta works.

On a local disk everything is synced before it counts, which Delta and Spark do not do. On object
stores and HDFS a file is durable when it is closed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from twophase.sinks.delta.jvm import Jvm, is_java
from twophase.sinks.delta.table_lock import table_lock

_NOT_FOUND = "java.io.FileNotFoundException"
_TORN = "org.apache.hadoop.fs.ChecksumException"
_GLOB = "\\*?[]{}^,"


class Storage:
    """Files below the folder of a table.

    Args:
        jvm: the JVM of Spark.
        root: the table's folder as Delta names it, qualified.
        configuration: Hadoop's configuration for that table.
    """

    def __init__(self, jvm: Jvm, root: str, configuration: Any) -> None:
        self._jvm = jvm
        self.root = root
        self._path = jvm.hadoop("Path")
        self._fs = self._path(root).getFileSystem(configuration)
        self._local = (
            Path(self._path(root).toUri().getPath()) if self._fs.getScheme() == "file" else None
        )

    def absolute(self, name: str) -> str:
        """Return the full name of a file below the table's folder."""
        return f"{self.root}/{name}"

    def refuses_writing(self) -> str:
        """Return the file system's objection to writing into the table's folder; empty if none."""
        return refusal_to_write(self._jvm, self._fs, self._path(self.root))

    def create_folder(self, name: str) -> None:
        """Create a folder and those above it."""
        if not self._fs.mkdirs(self._at(name)):
            raise OSError(f"could not create the folder {self.absolute(name)}")

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if it does not exist."""
        try:
            return sorted(
                status.getPath().getName() for status in self._fs.listStatus(self._at(folder))
            )
        except Py4JJavaError as error:
            if is_java(error, _NOT_FOUND):
                return []
            raise

    def create(self, name: str, data: bytes) -> None:
        """Write a new file durably. Raises if it exists."""
        stream = self._fs.create(self._at(name), False)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        self.sync([name])

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if it is gone, empty if its checksum shows a tear."""
        try:
            stream = self._fs.open(self._at(name))
            try:
                return self._jvm.read_all(stream)
            finally:
                stream.close()
        except Py4JJavaError as error:
            if is_java(error, _NOT_FOUND):
                return None
            if is_java(error, _TORN):
                return b""
            raise

    @contextmanager
    def opened(self, name: str) -> Iterator[HadoopFile]:
        """Open an existing file for reading in parts; only those are transferred."""
        path = self._at(name)
        size = int(self._fs.getFileStatus(path).getLen())
        with HadoopFile(self._fs.open(path), size, self._jvm.read_exactly) as file:
            yield file

    def relative(self, path: Any) -> str:
        """Return the name of a file below the table's folder, given Hadoop's path."""
        return str(path.toString()).removeprefix(f"{self.root}/")

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return bool(self._fs.exists(self._at(name)))

    def create_empty(self, name: str) -> None:
        """Create an empty file, unless it exists; two processes may do so at once.

        It is not synced to a local disk: after a power failure it may be missing.
        """
        self._fs.create(self._at(name), True).close()

    def size(self, name: str) -> int | None:
        """Return the length of a file; None if it does not exist."""
        try:
            return int(self._fs.getFileStatus(self._at(name)).getLen())
        except Py4JJavaError as error:
            if is_java(error, _NOT_FOUND):
                return None
            raise

    def delete(self, names: Iterable[str]) -> None:
        """Delete files and their local checksums; ignore those that do not exist."""
        for name in names:
            path = self._at(name)
            if not self._fs.delete(path, False) and self._fs.exists(path):
                raise OSError(f"the file {self.absolute(name)} could not be deleted")

    def starting_with(self, prefix: str, depth: int) -> list[str]:
        """Return files whose names start with `prefix`, at most `depth` folders below here.

        Relative to the table's folder.
        """
        found = []
        for level in range(depth + 1):
            pattern = f"{_literal(self.root)}/{'*/' * level}{_literal(prefix)}*"
            matches = self._fs.globStatus(self._path(pattern))
            found += [self.relative(status.getPath()) for status in matches or ()]
        return found

    def sync(self, names: Iterable[str]) -> None:
        """Sync files, and the folders that name them, to a local disk."""
        if self._local is None:
            return
        folders: set[Path] = set()
        for name in names:
            path = self._local / name
            _sync(path)
            checksum = path.parent / f".{path.name}.crc"
            if checksum.exists():
                _sync(checksum)
            folders.update(folder for folder in path.parents if folder.is_relative_to(self._local))
        for folder in folders:
            _sync(folder)

    @contextmanager
    def commit_lock(self) -> Iterator[None]:
        """Serialise all commits to this table on a local disk, where Delta's own way is not atomic.

        Raises:
            TimeoutError: another driver has held the table's lock too long.
            JvmLockedError: this JVM itself holds it for as long as it lives.
        """
        with nullcontext() if self._local is None else table_lock(self._local, self._jvm):
            yield

    def _at(self, name: str) -> Any:
        # The constructor with three parts takes a name literally: a colon in it makes no scheme.
        return self._path(self._path(self.root), self._path(None, None, name))


def refusal_to_write(jvm: Jvm, files: Any, folder: Any) -> str:
    """Return why a folder that exists cannot be written, as far as that shows without a write.

    Args:
        jvm: the JVM of Spark.
        files: the folder's file system.
        folder: as Hadoop's path.

    Returns:
        The objection of the file system or, on a local disk, of the kernel; empty if there is none.
    """
    try:
        files.access(folder, jvm.hadoop("permission.FsAction").WRITE)
    except Py4JJavaError as error:
        return str(error.java_exception.getMessage())
    if files.getScheme() != "file" or os.access(folder.toUri().getPath(), os.W_OK | os.X_OK):
        return ""
    return "the operating system refuses it"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _literal(text: str) -> str:
    return "".join(f"\\{character}" if character in _GLOB else character for character in text)


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
