"""Notes of the jars that Spark found for `spark.jars.packages`, so that it resolves them once.

A note is a file in the cache folder, with the size and time of each jar. One that no longer matches
is ignored, and Spark asks Ivy again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from twophase.spark.startup.cache import cache_root, is_ours
from twophase.spark.startup.packages import JARS, PACKAGES

_DECIDING = (
    PACKAGES,
    "spark.jars.excludes",
    "spark.jars.repositories",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
)


def known_jars(conf: Mapping[str, str]) -> tuple[Path, ...] | None:
    """Return the jars that Spark found for these packages before; None if it must find them.

    Args:
        conf: Spark's configuration.

    Raises:
        OSError: the cache folder cannot be read.
    """
    note = _note(conf)
    if not note.is_file() or not is_ours(note):
        return None
    try:
        noted = {Path(path): stamp for path, stamp in json.loads(note.read_text()).items()}
        is_unchanged = all(_stamp(path) == stamp for path, stamp in noted.items())
        return tuple(noted) if noted and is_unchanged else None
    except (OSError, ValueError):
        return None


def note_jars(conf: Mapping[str, str], found: str) -> None:
    """Note the jars that Spark found.

    Args:
        conf: the configuration that Spark was started with.
        found: its `spark.jars` after the start.

    Raises:
        OSError: the cache folder cannot be written.
    """
    given = {_path(jar) for jar in conf.get(JARS, "").split(",") if jar}
    jars = [path for jar in found.split(",") if jar and (path := _path(jar)) not in given]
    if not jars or not all(path.is_file() for path in jars):
        return
    note = _note(conf)
    with tempfile.NamedTemporaryFile(
        "w", dir=note.parent, prefix=f".{note.name}.", delete=False
    ) as file:
        json.dump({str(path): _stamp(path) for path in jars}, file)
    Path(file.name).replace(note)


def _note(conf: Mapping[str, str]) -> Path:
    deciding = json.dumps([conf.get(key, "") for key in _DECIDING])
    return cache_root() / f"packages-{hashlib.sha256(deciding.encode()).hexdigest()[:12]}.json"


def _path(jar: str) -> Path:
    return Path(unquote(urlsplit(jar).path)) if jar.startswith("file:") else Path(jar)


def _stamp(path: Path) -> list[int]:
    known = path.stat()
    return [known.st_size, known.st_mtime_ns]
