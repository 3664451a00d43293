"""One lock for all commits to a table on a local disk, whichever job and process makes them.

There Delta's own way is not atomic: its log store asks whether a version is taken, and then renames over it. Two drivers
that do so at once both succeed, and the second replaces the first one's commit (`HDFSLogStore.writeInternal`).

The lock is the file `_twophase/.lock` below the table's folder. Delta never deletes it: VACUUM passes over folders whose
names begin with `_` or `.` (`DeltaTableUtils.isHiddenDirectory`), readers know data files from the log alone, and the log's
own clean-up lists `_delta_log` only. The kernel releases it with its holder. Whoever takes no lock, such as a writer of
Delta's own, is not kept apart.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sinks.delta.names import FOLDER

NAME = f"{FOLDER}/.lock"

_TIMEOUT_S = 10.0
_POLL_S = 0.02


@contextmanager
def table_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the table in a local folder.

    Args:
        folder: of the table; holds `_twophase`.

    Raises:
        TimeoutError: another driver has held it too long. One that is paused in its commit would overwrite ours.
        PermissionError: this account cannot lock it.
    """
    path = folder / NAME
    descriptor = _open(path)
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """With the rights of any file of the table, so that jobs of other accounts can lock it: to read it is enough for that."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def _lock(descriptor: int, path: Path) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"another driver has held {path} for {_TIMEOUT_S:g} s: it commits to this table, or is paused in a "
                    "commit (lslocks shows its process)"
                ) from None
            time.sleep(_POLL_S)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            raise PermissionError(
                errno.EACCES,
                f"NFS locks only what may be written: let the accounts of all jobs write {path} (chmod, chgrp)",
            ) from None
        else:
            return
