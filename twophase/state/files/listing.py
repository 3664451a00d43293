"""Lists folders, and raises what the disk says: `Path.glob` leaves out what it cannot read, all of
it from Python 3.12 on. A missing folder is an empty one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def listed(folder: Path) -> list[Path]:
    """Return what a folder holds, sorted, without hidden names.

    Raises:
        OSError: it cannot be read.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def listed_below(folder: Path) -> list[Path]:
    """Return what the folders in a folder hold."""
    return [found for inner in listed(folder) for found in listed(inner)]


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its folders, of whatever depth, without hidden ones.

    Raises:
        OSError: one of them cannot be read.
    """
    try:
        with os.scandir(folder) as scanned:
            found = sorted(scanned, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():  # it raises where `Path.is_dir` may answer no
            yield from files_below(Path(entry.path))
        elif entry.is_file():
            yield Path(entry.path)
