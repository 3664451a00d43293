"""The jars of `spark.jars.packages`: given to Spark as files where they are known.

Spark asks Ivy at every start, which takes one to two seconds and prints a table. Jars that it has
found before (`jar_notes`) are named instead. A package whose jar is among Spark's own jars is
not resolved at all: its dependencies are assumed to be there too.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from twophase.spark.startup.java import spark_jars

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
PYTHON_FILES = "spark.submit.pyFiles"


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
