"""Lists folders, and raises what the disk says: `Path.glob` leaves out what it cannot read, all of
it from Python 3.12 on. A missing folder is an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def listed(folder: Path) -> list[Path]:
    """Return what a folder holds, sorted, without hidden names.

    Raises:
        OSError: it cannot be read.
    """
    try:
        found = sorted(folder.iterdir(), key=lambda path: path.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for path in found if not path.name.startswith(".")]


def listed_below(folder: Path) -> list[Path]:
    """Return what the folders in a folder hold."""
    return [found for inner in listed(folder) for found in listed(inner)]


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its folders, of whatever depth, without hidden ones.

    Raises:
        OSError: one of them cannot be read.
    """
    for path in listed(folder):
        if path.is_dir():
            yield from files_below(path)
        elif path.is_file():
            yield path
        else:
            path.lstat()  # from Python 3.14 on nothing else tells that the disk has not answered
