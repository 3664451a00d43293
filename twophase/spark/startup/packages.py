"""The jars of `spark.jars.packages`: given to Spark as files where they are known.

Spark asks Ivy at every start, which takes one to two seconds and prints a table. Jars that it has
found before are named instead, from a note: a file in the cache folder, with the size and time of
each jar. A note that no longer matches is ignored, and Spark asks Ivy again. A package whose jar is
among Spark's own jars is not resolved at all: its dependencies are assumed to be there too.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from twophase.spark.startup.cache import cache_root, is_ours
from twophase.spark.startup.java import spark_jars

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
PYTHON_FILES = "spark.submit.pyFiles"
_DECIDING = (
    PACKAGES,
    "spark.jars.excludes",
    "spark.jars.repositories",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
)


def without_installed(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings without the packages whose jars are among Spark's own.

    Args:
        conf: Spark's configuration.
    """
    asked = [
        coordinate for text in conf.get(PACKAGES, "").split(",") if (coordinate := text.strip())
    ]
    return {**conf, PACKAGES: ",".join(one for one in asked if not _is_installed(one))}


def with_jars(conf: Mapping[str, str], jars: Sequence[Path]) -> dict[str, str]:
    """Return settings that name jars instead of packages; Python code in them is importable."""
    with_python = filter(_has_python, jars)
    return {
        **conf,
        PACKAGES: "",
        JARS: _listed(conf, JARS, jars),
        PYTHON_FILES: _listed(conf, PYTHON_FILES, with_python),
    }


def _is_installed(coordinate: str) -> bool:
    """Return whether Spark has the jar of `group:artifact:version`, by Maven's or Ivy's name."""
    group, _, rest = coordinate.partition(":")
    name = f"{rest.replace(':', '-')}.jar"
    return any((spark_jars() / one).exists() for one in (name, f"{group}_{name}"))


def _listed(conf: Mapping[str, str], key: str, more: Iterable[Path]) -> str:
    return ",".join(filter(None, [conf.get(key, ""), *map(str, more)]))


def _has_python(jar: Path) -> bool:
    with zipfile.ZipFile(jar) as content:
        return any(name.endswith(".py") for name in content.namelist())


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
