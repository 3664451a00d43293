"""The cache folder, `TWOPHASE_CACHE` or `~/.cache/twophase`: each entry is built by one process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from twophase.spark.startup.progress import show_progress

CACHE_VARIABLE = "TWOPHASE_CACHE"
_PARTIAL = ".partial-"
_WRITABLE_BY_OTHERS = 0o022
_QUIET_S = 2.0
"""How long nothing is said of a wait for another process."""
_POLL_S = 0.01


def cache_root() -> Path:
    """Return the cache folder; create it if absent."""
    named = os.environ.get(CACHE_VARIABLE)
    root = Path(named).expanduser() if named else Path.home() / ".cache" / "twophase"
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


def cached(
    name: str, build: Callable[[Path], None], is_whole: Callable[[Path], bool] = Path.is_dir
) -> Path:
    """Return the folder `name` of the cache, built on first use.

    One process builds it; others wait for the result. `build` fills a temporary folder, which is
    renamed when it is complete: a crash leaves no partial entry.

    Args:
        name: one path component that includes the version.
        build: fills the empty folder it is given.
        is_whole: returns whether the folder can be used as it is. One that cannot is replaced.
    """
    root = cache_root()
    target = root / name
    if is_whole(target):
        return target
    with _locked(root / f".{name}.lock"):
        if is_whole(target):
            return target
        prefix = f".{name}{_PARTIAL}"
        for leftover in root.glob(f"{prefix}*"):  # from a killed build: we hold its lock
            shutil.rmtree(leftover, ignore_errors=True)
        _build(Path(tempfile.mkdtemp(prefix=prefix, dir=root)), target, build)
    return target


def _build(partial: Path, target: Path, build: Callable[[Path], None]) -> None:
    try:
        build(partial)
        shutil.rmtree(target, ignore_errors=True)  # there may be one that is not whole
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def drop_leftovers(pattern: str, is_wanted: Callable[[Path], bool]) -> None:
    """Delete the partial folders of killed builds: one that still runs holds its lock.

    Args:
        pattern: a glob pattern of the names that were to be built.
        is_wanted: returns whether to keep a folder nevertheless.
    """
    root = cache_root()
    for leftover in root.glob(f".{pattern}{_PARTIAL}*"):
        name = leftover.name.rpartition(_PARTIAL)[0]
        with suppress(OSError), (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_wanted(leftover):
                shutil.rmtree(leftover, ignore_errors=True)


def is_ours(path: Path) -> bool:
    """Return whether only we, or root, can have written a file, since its content is run.

    Others could replace it in a folder that they may write to; it would then belong to them.
    """
    known = path.stat()
    return known.st_uid in (os.geteuid(), 0) and not known.st_mode & _WRITABLE_BY_OTHERS


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        if not _is_locked_soon(handle):
            title = f"Waiting for another process that fills {path.parent}"
            with show_progress(title, announced=True):
                fcntl.flock(handle, fcntl.LOCK_EX)  # released by the kernel if that process dies
        yield


def _is_locked_soon(file: IO[str]) -> bool:
    """Lock a file if it can be done in a moment; return whether it is."""
    deadline_s = time.monotonic() + _QUIET_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        else:
            return True
