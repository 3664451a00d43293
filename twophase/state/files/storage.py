"""Storage of the job's folder, and its durable implementation on a local file system.

A name is created at most once, with its whole content, and is durable before `create` returns
(hazard rule HD1):

    1. write a temporary name          crash: a torn temporary name, ignored
    2. fsync it
    3. link it to the final name, without replacing: the one atomic step
    4. fsync the folder
    5. drop the temporary name
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from twophase.errors import ConfigError, CorruptRecordError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import HEAD_BYTES
from twophase.state.files.codec import MAX_BYTES, is_newer
from twophase.state.files.folder_rights import check_rights

_log = logging.getLogger("twophase")
_TEMPORARY = ".tmp-"
_OPTION = "checkpointLocation"
_NOT_LINKED = (
    errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.EPERM, errno.EXDEV, errno.ENOENT,
    errno.EOPNOTSUPP, errno.ENOTSUP,
)  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


class AlreadyExistsError(Exception):
    """The name is taken; the existing file was not touched."""


class UnclearOutcomeError(Exception):
    """The name may or may not exist, or exists but may not be durable."""


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
    """A folder of small files, immutable but for those of `append`. Names are relative, with '/'
    between parts.
    """

    @abstractmethod
    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        """Create `name` durably, if it is absent.

        Raises:
            AlreadyExistsError: the name is taken.
            UnclearOutcomeError: the atomic step was tried and its outcome is unknown.
            OSError: the name was certainly not created.
        """

    @abstractmethod
    def append(self, name: str, data: bytes) -> int:
        """Append to `name`, which is created if absent: for what people read, never for decisions.

        Several writers do not mix their data. A crash may lose or tear what it appends.

        Returns:
            The length of the file.

        Raises:
            OSError: all, a part or nothing of it was appended.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the bytes of `name`, at most `MAX_BYTES`.

        Raises:
            FileNotFoundError: there is no such name.
            CorruptRecordError: it is too large, or not a regular file.
        """

    def head(self, name: str, length: int) -> bytes:
        """Return the first bytes of `name`, however long it is.

        Raises:
            FileNotFoundError: there is no such name.
            CorruptRecordError: it is not a regular file.
        """
        return self.read(name)[:length]

    def is_newer(self, name: str) -> bool:
        """Return whether a newer version of twophase has written a file, or may have.

        Whatever deletes files in the folder leaves such a file. One that is gone or torn was
        written by nobody in particular; one that cannot be read now may be a newer version's.
        """
        try:
            return is_newer(self.head(name, HEAD_BYTES))
        except (FileNotFoundError, CorruptRecordError):
            return False
        except OSError:
            return True

    @abstractmethod
    def sync(self, folder: str) -> None:
        """Make everything in `folder` durable: no action may outlive the files it is based on."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the final names in `folder`, sorted; none if there is no such folder."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file or an empty folder, if it exists."""

    def delete_unneeded(self, name: str) -> bool:
        """Delete what nothing needs any more, as `delete` does; what cannot be deleted stays.

        That is a folder to which somebody has added a file, say. The job goes on, with a warning.

        Returns:
            Whether it is gone.
        """
        try:
            self.delete(name)
        except OSError as error:
            warn_left(name, error)
            return False
        return True

    @abstractmethod
    def delete_temporary(self, folder: str, is_over: Callable[[str], bool]) -> None:
        """Delete the temporary names in `folder` that interrupted creates have left. What cannot be
        deleted stays, with a warning.

        A create that is still in progress with such a name raises `FileNotFoundError`, certain not
        to have created its final name.

        Args:
            folder: nothing happens if it does not exist.
            is_over: for the final name of a temporary file, returns whether it can no
                longer be created.
        """


class LocalStorage(Storage):
    """A folder on a local file system. Folders have mode 0700, files 0600, whatever the umask.

    Args:
        root: the folder; created if absent.
        option: what named it, for errors.

    Raises:
        ConfigError: `root` is a URL of another storage, not a folder, a symbolic link, or another
            account can write to it or replace it (`check_rights`).
    """

    def __init__(self, root: str | Path, option: str = _OPTION) -> None:
        self.root = local_path(root, option)
        self._durable_folders: set[Path] = set()
        check_rights(self.root, option)
        self._make_folder(self.root)
        _check_folder(self.root, option)

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        """See `Storage.create`."""
        if len(data) > MAX_BYTES:
            raise OSError(
                errno.EFBIG,
                f"{len(data)} bytes, more than {MAX_BYTES}: too large to be read back",
                name,
            )
        final = self.root / name
        self._make_folder(final.parent)
        temporary = final.parent / f"{_TEMPORARY}{final.name}-{secrets.token_hex(8)}"
        try:
            self._write(temporary, data, crash_points)
            failpoint(crash_points.before_link)
            self._link(temporary, final)
            failpoint(crash_points.before_folder_sync)
            try:
                sync_path(final.parent)
            except OSError as error:
                raise UnclearOutcomeError(f"{name}: {error}") from error
        finally:
            # Readers ignore a leftover. An error here (a file system that went read-only after a
            # failed fsync) must not replace the outcome of the link: it would turn "in doubt" into
            # "certainly not created" (hazard H21).
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def append(self, name: str, data: bytes) -> int:
        """See `Storage.append`."""
        path = self.root / name
        self._make_folder(path.parent)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
        try:
            _write_all(descriptor, data)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    @staticmethod
    def _write(path: Path, data: bytes, crash_points: CrashPoints) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            os.fchmod(file.fileno(), 0o600)
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
            if error.errno in _NOT_LINKED:
                raise
            raise UnclearOutcomeError(f"{final}: {error}") from error

    def read(self, name: str) -> bytes:
        """See `Storage.read`."""
        with self._opened(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise _not_regular(self.root / name, f"{size} bytes long, more than {MAX_BYTES}")
            return file.read()

    def head(self, name: str, length: int) -> bytes:
        """See `Storage.head`."""
        with self._opened(name) as file:
            return file.read(length)

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """Open a regular file."""
        path = self.root / name
        descriptor = _open(path)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _not_regular(path, "not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)

    def sync(self, folder: str) -> None:
        """See `Storage.sync`."""
        path = self.root / folder
        for name in self.names(folder):
            with suppress(FileNotFoundError):  # another driver has folded the log meanwhile
                _sync_found(path / name)
        if path.exists():
            _sync_found(path)
        sync_path(self.root)

    def names(self, folder: str) -> list[str]:
        """See `Storage.names`."""
        try:
            found = os.listdir(self.root / folder)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise _not_regular(self.root / folder, "not a folder") from None
        return sorted(name for name in found if not name.startswith(_TEMPORARY))

    def delete(self, name: str) -> None:
        """See `Storage.delete`."""
        path = self.root / name
        try:
            if path.is_dir() and not path.is_symlink():
                self._durable_folders.discard(path)
                for torn in path.glob(f"{_TEMPORARY}*"):
                    torn.unlink(missing_ok=True)
                path.rmdir()
            else:
                path.unlink()
        except FileNotFoundError:
            return

    def delete_temporary(self, folder: str, is_over: Callable[[str], bool]) -> None:
        """See `Storage.delete_temporary`."""
        path = self.root / folder
        for torn in path.glob(f"{_TEMPORARY}*"):
            if is_over(torn.name.removeprefix(_TEMPORARY).rpartition("-")[0]):
                try:
                    torn.unlink(missing_ok=True)
                except OSError as error:
                    warn_left(f"{folder}/{torn.name}", error)

    def _make_folder(self, path: Path) -> None:
        """Create a folder durably; sync an existing one too, whose creator may have died."""
        if path in self._durable_folders:
            return
        if path != path.parent:
            self._make_folder(path.parent)
        if path.is_dir():
            _sync_if_allowed(path.parent)
        else:
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
                path.chmod(0o700)
            sync_path(path.parent)
        self._durable_folders.add(path)


class ReadOnlyStorage(LocalStorage):
    """A folder opened for reading only: nothing is synced, so do not act on what is read here.

    Raises:
        ConfigError: there is no such folder, unless it may be missing; or see `LocalStorage`.
    """

    def __init__(
        self, root: str | Path, option: str = _OPTION, *, missing_ok: bool = False
    ) -> None:
        self.root = local_path(root, option)
        if not self.root.exists():
            if missing_ok:
                return
            raise ConfigError(
                f"There is no folder {str(self.root)!r}.",
                remedy=f"name the job's {option}.",
            )
        _check_folder(self.root, option)

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:  # noqa: ARG002
        """Refused."""
        raise OSError(errno.EROFS, "opened for reading only", str(self.root / name))

    def append(self, name: str, data: bytes) -> int:  # noqa: ARG002
        """Refused."""
        raise OSError(errno.EROFS, "opened for reading only", str(self.root / name))

    def sync(self, folder: str) -> None:
        """Do nothing."""

    def delete(self, name: str) -> None:
        """Refused."""
        raise OSError(errno.EROFS, "opened for reading only", str(self.root / name))

    def delete_temporary(self, folder: str, is_over: Callable[[str], bool]) -> None:  # noqa: ARG002
        """Refused."""
        raise OSError(errno.EROFS, "opened for reading only", str(self.root / folder))


def warn_left(name: str, error: Exception) -> None:
    """Warn that what nothing needs any more is left in the folder."""
    _log.warning("%s is no longer needed, cannot be deleted and is left: %s", name, error)


def local_path(root: str | Path, option: str = _OPTION) -> Path:
    """Return the absolute folder of a path or URL: `/chk`, `file:/chk` and `file:///chk` are one.

    Raises:
        ConfigError: it is a URL of another storage, or not a path.
    """
    text = str(root)
    remedy = "use a folder on a local file system."
    if "\0" in text:
        raise ConfigError(f"{option} {text!r} is not a path.", remedy=remedy)
    url = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(.*)", text, flags=re.DOTALL)
    if url is None:
        return Path(text).absolute()
    scheme, host, path = url.groups()
    if scheme != "file":
        raise ConfigError(
            f"{option} {text!r}: {scheme!r} is not supported: its create-if-absent is "
            "not proven to be atomic.",
            remedy=remedy,
        )
    if host not in (None, "//", "//localhost"):
        raise ConfigError(f"{option} {text!r} is on another machine, {host[2:]!r}.", remedy=remedy)
    return Path(path).absolute()


def _check_folder(path: Path, option: str) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode) or not stat.S_ISDIR(mode):
        raise ConfigError(
            f"{option} {str(path)!r} is not a folder.",
            remedy="name a folder, not a link or file.",
        )


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_path(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(path: Path) -> None:
    """Make everything durable that any process has written to the file system of `path`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(descriptor)


def _sync_if_allowed(path: Path) -> None:
    """Sync a folder above the job's, unless the account may not: then we did not create it."""
    try:
        sync_path(path)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS):
            raise


def _sync_found(path: Path) -> None:
    """Sync a path from a listing, which need not be a file that we created."""
    descriptor = _open(path)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise _not_regular(path, "not a regular file")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open for reading: never through a symbolic link, never waiting for a pipe's other end."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_regular(path, "a symbolic link") from None
        if error.errno == errno.ENXIO:
            raise _not_regular(path, "not a regular file") from None
        raise


def _not_regular(path: Path, what: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"The durable file {path} is {what}.",
        remedy="find out who changed the job's folder, and restore it from a backup.",
    )
