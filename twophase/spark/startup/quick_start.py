"""Combines for one driver everything that makes Spark start quickly.

classes     the JVM maps Spark's classes from an archive (`class_archive`)
launcher    the JVM that only prints the command of the real one need not compile anything
bytecode    the workers' Python finds pyspark already compiled (`worker_python`)
daemon      the workers are forked from a process that has imported what they need (`daemon`)

None of this changes what Spark does. Parts that are unavailable are left out.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from twophase.errors import ServiceError
from twophase.spark.startup.class_archive import (
    SUBMIT_OPTIONS_VARIABLE,
    ClassArchive,
    takes_archives,
)
from twophase.spark.startup.daemon import PRELOAD_VARIABLE
from twophase.spark.startup.java import SHORT_LIVED, java_version, spark_home
from twophase.spark.startup.worker_python import worker_python

SWITCH_VARIABLE = "TWOPHASE_QUICK_START"
"""Set to `0` or `off` in the environment, it switches all of this off."""

PYTHON_VARIABLE = "PYSPARK_PYTHON"
DRIVER_PYTHON_VARIABLE = "PYSPARK_DRIVER_PYTHON"
DAEMON_KEY = "spark.python.daemon.module"

_OFF = ("0", "off", "false", "no")
_OWN_ARCHIVE = "SharedArchiveFile"
_JVM_VARIABLES = (SUBMIT_OPTIONS_VARIABLE, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LAUNCHER_VARIABLE = "SPARK_LAUNCHER_OPTS"

_log = logging.getLogger("twophase.spark.startup")


def is_switched_off() -> bool:
    """Return whether the environment switches quick starts off."""
    return os.environ.get(SWITCH_VARIABLE, "").strip().lower() in _OFF


def find_archive(jars: Sequence[Path], conf: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive for a driver; None if the user has another, or there can be none.

    Args:
        jars: the jars that the driver adds to Spark's own.
        conf: Spark's configuration.
    """
    settings = [os.environ.get(name, "") for name in _JVM_VARIABLES] + [conf.get(_JAVA_OPTIONS, "")]
    if any(_OWN_ARCHIVE in text for text in settings):
        return None
    archive = ClassArchive(tuple(sorted(jars)))
    try:
        if not takes_archives(java_version()):
            return None
        archive.is_due()
    except (OSError, ServiceError) as error:
        _log.debug("no class archive: %s", error)
        return None
    return archive


def jvm_environment(archive: ClassArchive | None, preload: Sequence[str] = ()) -> dict[str, str]:
    """Return environment variables for the process that will be Spark's JVM.

    Args:
        archive: the result of `find_archive`.
        preload: modules that the workers need, besides those of twophase itself.
    """
    own = os.environ.get(SUBMIT_OPTIONS_VARIABLE, "")
    added = shlex.join(archive.options() if archive else ())
    found = {
        "SPARK_HOME": spark_home(),
        _LAUNCHER_VARIABLE: os.environ.get(_LAUNCHER_VARIABLE) or shlex.join(SHORT_LIVED),
        SUBMIT_OPTIONS_VARIABLE: f"{own} {added}".strip(),
        PRELOAD_VARIABLE: ",".join(preload),
    }
    python = find_worker_python()
    return found | ({PYTHON_VARIABLE: python} if python else {})


def find_worker_python() -> str | None:
    """Return the workers' Python; None if the user has named one, or the cache is read-only."""
    if os.environ.get(PYTHON_VARIABLE):
        return None
    try:
        return str(worker_python())
    except OSError as error:
        _log.debug("the workers compile pyspark: %s", error)
        return None
