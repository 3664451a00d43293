"""Atomic and durable file operations, on Linux.

A file gets its final name by `renameat2(RENAME_NOREPLACE)`: it has either one name or the other,
and nothing is replaced (hazard H22). Folders below a table are opened one by one without following
links, so that no name leads out of the table.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from twophase.errors import StopJobError
from twophase.internals.failpoints import failpoint

HERE = -100
"""AT_FDCWD: names are relative to the working folder, or absolute."""

_NOREPLACE = 1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_libc = ctypes.CDLL(None, use_errno=True)


def rename_new(source: Path, target: str | Path, folder: int = HERE) -> None:
    """Rename a file or folder atomically, never replacing an existing name.

    Args:
        source: its name.
        target: the new name.
        folder: descriptor of the folder that `target` is relative to.

    Raises:
        FileExistsError: the new name is taken; nothing was changed.
        FileNotFoundError: the source does not exist.
        OSError: anything else; EINVAL if the file system has no such rename.
    """
    if _libc.renameat2(HERE, os.fsencode(source), folder, os.fsencode(target), _NOREPLACE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(source), None, str(target))


@contextmanager
def opened_folder(root: Path, names: Sequence[str]) -> Iterator[int]:
    """Open a folder below `root`, creating what is missing; nothing is synced.

    Yields:
        Its descriptor.

    Raises:
        NotADirectoryError: a name on the way is a link or a file.
    """
    with ExitStack() as stack:
        descriptor = os.open(root, _FOLDER)
        stack.callback(os.close, descriptor)
        for name in names:
            descriptor = _open_child(descriptor, name)
            stack.callback(os.close, descriptor)
        yield descriptor


def _open_child(parent: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another driver has created it in between
            os.mkdir(name, dir_fd=parent)
        return os.open(name, _FOLDER, dir_fd=parent)


def sync(*folders: Path) -> None:
    """Make the names in folders durable."""
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def digest(name: str | Path, folder: int | None = None) -> str:
    """Return the hex SHA-256 of a file's content, without following links."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def not_overwritten(file: object) -> StopJobError:
    """Return the error of a file that has the final name of a pre-committed one, and is another."""
    return StopJobError(
        f"{file} is not the file that was pre-committed, and is not overwritten. "
        "Someone else created or changed it.",
        remedy="find out who; move that file away, then start the job again.",
    )


class NewFile:
    """A file being written, for pyarrow too, which computes its length and SHA-256 on the way.

    Args:
        path: its name; must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666
        )
        self._sha256 = hashlib.sha256()
        self.size = 0
        self.closed = False

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def sha256(self) -> str:
        """The hex digest of the bytes written so far."""
        return self._sha256.hexdigest()

    def write(self, data: bytes | memoryview) -> int:
        """Append."""
        view = memoryview(data)
        self._sha256.update(view)
        self.size += len(view)
        left = view
        while left:
            left = left[os.write(self._descriptor, left) :]
        return len(view)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: pyarrow's writers call it; the `with` block syncs and closes the file."""

    def sync(self) -> None:
        """Make the content durable."""
        failpoint("F01")
        os.fsync(self._descriptor)


def write_durably(path: Path, parts: Iterable[bytes]) -> None:
    """Write a small new file, which is there whole, durably and with its name, or not at all."""
    temporary = path.with_name(f".{path.name}")
    with NewFile(temporary) as file:
        for part in parts:
            file.write(part)
        file.sync()
    rename_new(temporary, path)
    sync(path.parent)
