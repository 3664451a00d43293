"""Finds Java, and the jars of Spark and pyspark."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

from twophase.errors import ServiceError
from twophase.internals.pyspark_version import SPECIFIER

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A JVM that lives for seconds is not worth optimised machine code or a parallel collector."""


def java() -> str:
    """Return the path of the `java` program: in JAVA_HOME, else on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise ServiceError(
            "No Java was found: JAVA_HOME does not name one, and `java` is not on the PATH.",
            remedy="install a JDK 17 (Debian: `apt-get install -y openjdk-17-jre-headless`) or "
            "set JAVA_HOME.",
        )
    return found


def java_version() -> int | None:
    """Return the version of that Java, such as 17; None if its home does not say."""
    release = Path(java()).resolve().parents[1] / "release"
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), flags=re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def spark_home() -> str:
    """Return the folder of the Spark that starts: SPARK_HOME, else the installed pyspark."""
    return os.environ.get("SPARK_HOME") or str(pyspark_jars().parent)


def spark_jars() -> Path:
    """Return that Spark's folder of jars."""
    return Path(spark_home(), "jars")


def pyspark_jars() -> Path:
    """Return the folder of jars in the installed pyspark, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceError(
            "pyspark is not installed; its Ivy fetches the servers.",
            remedy=f"pip install '{SPECIFIER}'",
        )
    return Path(spec.origin).parent / "jars"
