"""The jars of `spark.jars.packages`: given to Spark as files where they are known.

Spark asks Ivy at every start, which takes one to two seconds and prints a table. Jars that it has
found before are named instead, from a note: a file in the cache folder, with the size and time of
each jar. A note that no longer matches is ignored, and Spark asks Ivy again. A package whose jar is
among Spark's own jars is not resolved at all: its dependencies are assumed to be there too.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import quoteattr

from twophase.spark.startup.cache import cache_root, is_ours
from twophase.spark.startup.java import spark_jars

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
PYTHON_FILES = "spark.submit.pyFiles"
IVY_SETTINGS = "spark.jars.ivySettings"
_CENTRAL_VARIABLE = "DEFAULT_ARTIFACT_REPOSITORY"
"""Spark's variable for a mirror of Maven Central."""
_CENTRAL = "https://repo1.maven.org/maven2/"
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="all"/>
  <resolvers>
    <chain name="all">
      <ibiblio name="central" m2compatible="true" root={}/>
      <ibiblio name="spark-packages" m2compatible="true" root="https://repos.spark-packages.org/"/>
    </chain>
  </resolvers>
</ivysettings>
"""
_DECIDING = (
    PACKAGES,
    "spark.jars.excludes",
    "spark.jars.repositories",
    "spark.jars.ivy",
    IVY_SETTINGS,
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


def without_local_maven(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings with which Ivy does not look into the user's Maven folder, `~/.m2`.

    Maven leaves entries there that have a description and no jar; Ivy takes such an entry for the
    package, and fails. Settings of Ivy that the user names stay.

    Raises:
        OSError: the cache folder cannot be written.
    """
    if IVY_SETTINGS in conf or IVY_SETTINGS in _spark_defaults():
        return conf
    path = cache_root() / "ivysettings.xml"
    central = os.environ.get(_CENTRAL_VARIABLE, _CENTRAL)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(_IVY_SETTINGS.format(quoteattr(central)))
    Path(file.name).replace(path)
    return {**conf, IVY_SETTINGS: str(path)}


def _spark_defaults() -> str:
    """Return the text of Spark's own configuration file; empty if there is none."""
    folder = os.environ.get("SPARK_CONF_DIR") or spark_jars().parent / "conf"
    try:
        return (Path(folder) / "spark-defaults.conf").read_text()
    except OSError:
        return ""


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
