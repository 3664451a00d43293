"""One lock for all commits to a table on a local disk, from any job and process.

There Delta's own way is not atomic: its log store checks whether a version is taken, and then
renames over it. Two drivers that do so at once both succeed, and the second replaces the first
one's commit (`HDFSLogStore.writeInternal`).

Two files below the table's folder are locked, one after the other:

    1. `_twophase/.lock`      by Python with `flock`, which also separates the sinks of one process
    2. `_twophase/.lock-jvm`  by Spark's JVM with `fcntl`, as Java locks files

The second is needed because the JVM writes the commit, and can outlive the Python that asked for
it: a killed driver's JVM ends when it reads the end of its standard input, which is late if its
disk hangs. The kernel releases a lock with its process, so the table is free when no process is
left that could write. There are two files because NFS treats both kinds of lock as one, in which
the two processes of one driver would wait for each other. Closing any descriptor of a file releases
the `fcntl` locks of the whole process, so the JVM opens the second file only under the first lock.

A JVM can outlive its Python and serve another one (a gateway of PYSPARK_GATEWAY_PORT, Livy,
notebooks). It then has the second file open for the dead one, and may still be committing. So a
system property of the JVM, named after the file, says that it has the file open; as long as it is
set, nobody opens the file again.

The JVM may also be at a commit whose answer its Python does not wait for: after Ctrl-C in the main
thread, or a lost connection. py4j goes on over another connection, so closing the file would
release the lock under the commit. The file stays open, and the property set, for as long as the JVM
lives; the first lock is released, and its next holder finds the second one taken.

Delta never deletes the files: VACUUM skips folders whose names begin with `_` or `.`
(`DeltaTableUtils.isHiddenDirectory`), readers know data files only from the log, and the log's own
clean-up lists only `_delta_log`. A writer that does not take the lock, such as Delta's
own, is not excluded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.errors import StopJobError
from twophase.sinks.delta.jvm import keep_alive, may_be_running, release
from twophase.sinks.delta.names import FOLDER

if TYPE_CHECKING:
    from twophase.sinks.delta.jvm import Jvm

NAME = f"{FOLDER}/.lock"
JVM_NAME = f"{FOLDER}/.lock-jvm"

_TIMEOUT_S = 10.0
_POLL_S = 0.02
_READ_AND_WRITE = 0o666


class JvmLockedError(StopJobError):
    """This JVM holds the lock for a commit that nobody waits for: only another JVM gets it."""


@contextmanager
def table_lock(folder: Path, jvm: Jvm) -> Iterator[None]:
    """Hold both locks of the table in a local folder.

    Args:
        folder: the table's folder; `_twophase` is made in it if it is missing.
        jvm: the JVM that writes the commit.

    Raises:
        TimeoutError: another driver has held one too long. A commit that is paused
            would overwrite ours.
        JvmLockedError: this JVM holds the second one for a commit that it has not answered and that
            would overwrite ours.
        PermissionError: this account cannot lock them.
    """
    deadline_s = time.monotonic() + _TIMEOUT_S
    with python_lock(folder, deadline_s), _jvm_lock(folder, jvm, deadline_s):
        yield


@contextmanager
def python_lock(folder: Path, deadline_s: float) -> Iterator[None]:
    """Hold the first lock. Raises as `table_lock` does, except for the JVM's errors."""
    path = folder / NAME
    path.parent.mkdir(exist_ok=True)
    descriptor = _open(path)
    try:
        _wait(lambda: _locks(descriptor, path), path, deadline_s)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _jvm_lock(folder: Path, jvm: Jvm, deadline_s: float) -> Iterator[None]:
    """Hold the second lock, under the first one, until the JVM has answered, or the log for it.

    Raises as `table_lock` does.
    """
    older = sys.exception()
    path = folder / JVM_NAME
    create_jvm_file(path)
    key = _announce(path, jvm)
    file = _open_locked(path, key, jvm, deadline_s)
    try:
        yield
    except BaseException as error:
        if not may_be_running(error, older):
            _release(file, key, jvm)
        raise
    _release(file, key, jvm)


def _announce(path: Path, jvm: Jvm) -> str:
    """Record that this JVM will open the file, at most once; return the property that says so.

    Any other holder has died, or has given up a commit that may go on: we hold the first lock.

    Raises:
        JvmLockedError: it has it open.
    """
    file = path.stat()
    key = f"twophase.delta.lock.{file.st_dev}.{file.st_ino}"
    if jvm.set_property(key, str(path)) is not None:
        raise JvmLockedError(
            f"this JVM has locked {path} for a commit to this table whose Python died, was "
            "interrupted or lost its connection, and may still be making that commit "
            "(lslocks shows its process).",
            remedy="end this JVM (in a notebook, restart the kernel), then start the job again: "
            "it commits decided checkpoints.",
        )
    return key


def _open_locked(path: Path, key: str, jvm: Jvm, deadline_s: float) -> Any:
    """Open and lock the second file; leave nothing behind if that fails.

    Raises as `table_lock` does.

    If it is unknown whether the JVM has opened it, as after an interrupt in that call, the
    property stays set.
    """
    older = sys.exception()
    try:
        file = jvm.open_file(path)
        keep_alive(file)  # Java closes what nobody refers to
    except Exception as error:
        if not may_be_running(error, older):
            jvm.clear_property(key)
        raise
    try:
        channel = file.getChannel()
        _wait(lambda: channel.tryLock() is not None, path, deadline_s)
    except BaseException:  # even an interrupt: no commit has begun
        _release(file, key, jvm)
        raise
    return file


def _release(file: Any, key: str, jvm: Jvm) -> None:
    file.close()
    release(file)
    jvm.clear_property(key)


def create_jvm_file(path: Path) -> None:
    """Create the second file, writable for all who may write into its folder, as Java needs it.

    If the file system refuses the group or the mode, they stay as they are; an account that then
    lacks access gets an error.

    Raises:
        PermissionError: this account may not write it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _READ_AND_WRITE)
    except PermissionError:
        raise _unwritable(path, "Java") from None
    try:
        file, folder = os.fstat(descriptor), path.parent.stat()
        if file.st_uid != os.geteuid():
            return
        if file.st_gid != folder.st_gid:
            # not a member of that group, or it is not mapped (user namespaces, NFS)
            with suppress(OSError):
                os.fchown(descriptor, -1, folder.st_gid)
        missing = folder.st_mode & _READ_AND_WRITE & ~file.st_mode
        if missing:
            with suppress(OSError):  # all files have the same (vfat, FUSE)
                os.fchmod(descriptor, stat.S_IMODE(file.st_mode) | missing)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Create it readable as any file of the table, so that jobs of other accounts can lock it."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def _locks(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        raise _unwritable(path, "NFS") from error
    return True


def _wait(locks: Callable[[], bool], path: Path, deadline_s: float) -> None:
    while not locks():
        if time.monotonic() > deadline_s:
            raise TimeoutError(
                f"{path} could not be locked within {_TIMEOUT_S:g} s: another driver is committing "
                "to this table, or is paused in a commit (lslocks shows its process)"
            )
        time.sleep(_POLL_S)


def _unwritable(path: Path, locker: str) -> PermissionError:
    return PermissionError(
        errno.EACCES,
        f"{locker} can lock a file only if it may write it: let the accounts of all jobs "
        f"write {path} (chmod, chgrp)",
    )
