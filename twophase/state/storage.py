"""Where the job's folder lives, and the durable local writer.

A name is created at most once, whole, and durable before `create` returns (hazard rule HD1):

    1. write a temporary name          crash: a torn temporary name, ignored
    2. fsync it
    3. link it to the final name, without replacing: the one atomic step
    4. fsync the folder
    5. drop the temporary name
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from twophase.errors import ConfigError, CorruptRecordError
from twophase.failpoints import failpoint
from twophase.state.codec import MAX_BYTES

_TEMPORARY = ".tmp-"


class AlreadyExistsError(Exception):
    """The name is taken; what is there was not touched."""


class UnclearOutcomeError(Exception):
    """The name may or may not exist, or may not be durable."""


@dataclass(frozen=True)
class CrashPoints:
    """The failpoints of one kind of write; empty names are never hit."""

    half_written: str = ""
    before_sync: str = ""
    before_link: str = ""
    before_folder_sync: str = ""


NO_CRASH_POINTS = CrashPoints()
DECISION_CRASH_POINTS = CrashPoints("C07", "C08", "C09", "C10")


class Storage(ABC):
    """A folder of small immutable files. Names are relative, with '/' between parts."""

    @abstractmethod
    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        """Create `name` durably, if it is absent.

        Raises:
            AlreadyExistsError: the name is taken.
            UnclearOutcomeError: the atomic step was tried and its outcome is unknown.
            OSError: the name was certainly not created.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the bytes of `name`, at most `MAX_BYTES`.

        Raises:
            FileNotFoundError: there is no such name.
            CorruptRecordError: it is too large, or no plain file.
        """

    @abstractmethod
    def sync(self, folder: str) -> None:
        """Make everything found in `folder` durable, so that acting on it cannot outlive it."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The final names in `folder`, sorted; temporary names are left out. Empty if there is no such folder."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file or an empty folder, if it is there."""


class LocalStorage(Storage):
    """A folder on a local file system. Folders 0700, files 0600, whatever the umask.

    Args:
        root: the folder; made if absent.

    Raises:
        ConfigError: `root` is a URL of another storage, no folder, a symbolic link, or writable by everyone.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = _local_path(root)
        self._make_folder(self.root)
        _check_folder(self.root)

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        final = self.root / name
        self._make_folder(final.parent)
        temporary = final.parent / f"{_TEMPORARY}{final.name}-{secrets.token_hex(8)}"
        try:
            self._write(temporary, data, crash_points)
            failpoint(crash_points.before_link)
            self._link(temporary, final)
            failpoint(crash_points.before_folder_sync)
            try:
                _sync_path(final.parent)
            except OSError as error:
                raise UnclearOutcomeError(f"{name}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)

    @staticmethod
    def _write(path: Path, data: bytes, crash_points: CrashPoints) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            half = len(data) // 2
            _write_all(file.fileno(), data[:half])
            failpoint(crash_points.half_written)
            _write_all(file.fileno(), data[half:])
            failpoint(crash_points.before_sync)
            os.fsync(file.fileno())

    @staticmethod
    def _link(temporary: Path, final: Path) -> None:
        try:
            os.link(temporary, final, follow_symlinks=False)
        except FileExistsError as error:
            raise AlreadyExistsError(str(final)) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.EPERM, errno.EXDEV, errno.ENOENT):
                raise
            raise UnclearOutcomeError(f"{final}: {error}") from error

    def read(self, name: str) -> bytes:
        path = self.root / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _not_plain(path, "a symbolic link") from None
            raise
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _not_plain(path, "no plain file")
            if status.st_size > MAX_BYTES:
                raise _not_plain(path, f"{status.st_size} bytes long, more than {MAX_BYTES}")
            return file.read()

    def sync(self, folder: str) -> None:
        path = self.root / folder
        for name in self.names(folder):
            _sync_path(path / name)
        if path.exists():
            _sync_path(path)

    def names(self, folder: str) -> list[str]:
        try:
            found = os.listdir(self.root / folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith(_TEMPORARY))

    def delete(self, name: str) -> None:
        path = self.root / name
        try:
            if path.is_dir() and not path.is_symlink():
                for torn in path.glob(f"{_TEMPORARY}*"):
                    torn.unlink(missing_ok=True)
                path.rmdir()
            else:
                path.unlink()
        except FileNotFoundError:
            return

    def _make_folder(self, path: Path) -> None:
        if path.is_dir():
            return
        self._make_folder(path.parent)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return
        path.chmod(0o700)
        _sync_path(path.parent)


def _local_path(root: str | Path) -> Path:
    text = str(root)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        raise ConfigError(
            f"checkpointLocation {text!r}: {scheme!r} is not supported: its create-if-absent is not proven to be atomic.",
            remedy="use a folder on a local file system.",
        )
    return Path(rest if separator else text.removeprefix("file:")).absolute()


def _check_folder(path: Path) -> None:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or not stat.S_ISDIR(status.st_mode):
        raise ConfigError(
            f"checkpointLocation {str(path)!r} is no folder.", remedy="name a folder, not a link or file."
        )
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"checkpointLocation {str(path)!r} is writable by everyone: anyone could change what is decided.",
            remedy=f"run: chmod 700 {path}",
        )


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_plain(path: Path, what: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"The durable file {path} is {what}.",
        remedy="find out who changed the job's folder, and restore it from a backup.",
    )
