"""Symbolic links in a path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_MAX_LINKS = 40
"""Linux follows no more in one path."""


def ways_to(path: Path) -> Iterator[Path]:
    """Yield an absolute path, then again and again with its first symbolic link replaced by what
    it points to; the last one has none.

    Whoever may write to a folder above one of them, also where a link lies that a link points to,
    can lead the path elsewhere.
    """
    yield path
    for _ in range(_MAX_LINKS):
        link = next((one for one in (*reversed(path.parents), path) if one.is_symlink()), None)
        if link is None:
            return
        path = link.parent / link.readlink() / path.relative_to(link)
        yield path
