"""Copies of checkpoints: bodies and state files in more than one folder (`checkpoint.copies`).

The log is in the job's folder only: it alone decides. A copy replaces a file of a checkpoint whose
SHA-256 the log, or a body, names. The job's folder is written first and deleted last, and a copy
that fails costs redundancy, not the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from twophase.errors import ConfigError, CorruptRecordError
from twophase.internals.failpoints import failpoint
from twophase.internals.record import digest
from twophase.state.files import codec
from twophase.state.files.storage import (
    NO_CRASH_POINTS,
    AlreadyExistsError,
    CrashPoints,
    LocalStorage,
    ReadOnlyStorage,
    Storage,
    UnclearOutcomeError,
    local_path,
)

_log = logging.getLogger("twophase")
_OPTION = "checkpoint.copies"
_OWNER = "_job"
_KIND = "COPIES"


class StorageWithCopies(Storage):
    """The job's folder, and folders with copies of what is written through here.

    Args:
        primary: the job's folder.
        copies: the others, in the order in which they are read.
    """

    def __init__(self, primary: Storage, copies: Sequence[LocalStorage]) -> None:
        self._primary = primary
        self._copies = copies

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        """See `Storage.create`; a copy that cannot be written is a warning."""
        self._primary.create(name, data, crash_points)
        for copy in self._copies:
            failpoint("K01")
            try:
                copy.create(name, data)
            except (OSError, AlreadyExistsError, UnclearOutcomeError) as error:
                _warn(copy, "lacks", name, error)

    def read(self, name: str) -> bytes:
        """See `Storage.read`: of the job's folder."""
        return self._primary.read(name)

    def read_intact(self, name: str, sha256: str) -> bytes:
        """See `Storage.read_intact`."""
        try:
            data = self._primary.read(name)
        except (OSError, CorruptRecordError) as error:
            why: Exception | None = error
        else:
            why = None
            if digest(data) == sha256:
                return data
        for copy in self._copies:
            found = _read_copy(copy, name)
            if found is not None and digest(found) == sha256:
                _log.warning(
                    "%s is %s in the job's folder; its copy in %s is intact and is used",
                    *(name, f"not readable ({why})" if why else "damaged", copy.root),
                )
                return found
        if why:
            raise why
        return data

    def head(self, name: str, length: int) -> bytes:
        """See `Storage.head`: of the first folder that has the file."""
        for folder in (self._primary, *self._copies):
            with suppress(FileNotFoundError):
                return folder.head(name, length)
        raise FileNotFoundError(name)

    def sync(self, folder: str) -> None:
        """See `Storage.sync`: of the job's folder."""
        self._primary.sync(folder)

    def names(self, folder: str) -> list[str]:
        """See `Storage.names`: of all folders, so that whatever is swept is swept in each."""
        found = {*self._primary.names(folder)}
        for copy in self._copies:
            try:
                found.update(copy.names(folder))
            except (OSError, CorruptRecordError) as error:
                _warn(copy, "is not searched for", folder, error)
        return sorted(found)

    def delete(self, name: str) -> None:
        """See `Storage.delete`; what cannot be deleted in a copy is a warning."""
        for copy in self._copies:
            try:
                copy.delete(name)
            except OSError as error:
                _warn(copy, "keeps", name, error)
            failpoint("K02")
        self._primary.delete(name)

    def delete_temporary(self, folder: str, is_over: Callable[[str], bool]) -> None:
        """See `Storage.delete_temporary`: of the job's folder."""
        self._primary.delete_temporary(folder, is_over)


def with_copies(job: str, primary: Storage, folders: Sequence[str]) -> Storage:
    """Return the job's storage for checkpoints, which has copies in these folders too.

    Args:
        job: the job's name. A folder is for the copies of one job.
        primary: the job's folder.
        folders: the option `checkpoint.copies`. One that is not reachable is left out,
            with a warning.

    Raises:
        ConfigError: a folder is named twice, belongs to another job, overlaps the job's folder or
            must not be trusted.
    """
    opened = [found for folder in folders if (found := _open(job, primary, folder)) is not None]
    roots = [copy.root.resolve() for copy in opened]
    if twice := [root for root in roots if roots.count(root) > 1]:
        raise ConfigError(
            f"{_OPTION} names {str(twice[0])!r} twice.", remedy="name each folder once."
        )
    return StorageWithCopies(primary, opened) if opened else primary


def readable_copies(primary: Storage, folders: Sequence[str]) -> Storage:
    """Return a job's folder, opened for reading, with the copies that are there.

    Args:
        primary: the job's folder.
        folders: the option `checkpoint.copies`.
    """
    opened = []
    for folder in folders:
        try:
            opened.append(ReadOnlyStorage(folder, _OPTION))
        except (ConfigError, OSError) as error:
            _log.warning("%s %r is not read: %s", _OPTION, folder, error)
    return StorageWithCopies(primary, opened) if opened else primary


def _open(job: str, primary: Storage, folder: str) -> LocalStorage | None:
    root = local_path(folder, _OPTION).resolve()
    if isinstance(primary, LocalStorage):
        own = primary.root.resolve()
        if root.is_relative_to(own) or own.is_relative_to(root):
            raise ConfigError(
                f"{_OPTION} {folder!r} is inside the job's own folder {own}, or contains it.",
                remedy="name a separate folder, preferably on another disk.",
            )
    try:
        copy = LocalStorage(root, _OPTION)
        _claim(job, copy)
    except (OSError, UnclearOutcomeError) as error:
        _log.warning("%s %r is not used until the next start: %s", _OPTION, folder, error)
        return None
    return copy


def _claim(job: str, copy: LocalStorage) -> None:
    """Make the folder this job's own: a sweep deletes what the job's log does not name."""
    try:
        copy.create(_OWNER, codec.encode(_KIND, {"job": job}))
    except AlreadyExistsError:
        owner = codec.decode(_KIND, copy.read(_OWNER), str(copy.root / _OWNER), dict)["job"]
        if owner != job:
            raise ConfigError(
                f"{_OPTION} {str(copy.root)!r} holds the copies of job {owner!r}.",
                remedy="name a folder of its own for each job.",
            ) from None


def _warn(copy: LocalStorage, what: str, name: str, error: Exception) -> None:
    _log.warning("%s: %s %s %s: %s", _OPTION, copy.root, what, name, error)


def _read_copy(copy: LocalStorage, name: str) -> bytes | None:
    try:
        return copy.read(name)
    except (OSError, CorruptRecordError):
        return None
