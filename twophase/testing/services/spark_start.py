"""Starts Spark with less processor time, for tests and demos that start a driver again and again.

It does what `twophase run` does for its own Spark (`twophase/spark/startup`), but tunes the JVM for
a life of seconds, and records no class archive: no start waits for one. `fetch` records it.

    os.environ.update(spark_environment())     # before the first SparkSession
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from twophase.spark.startup.class_archive import (
    SUBMIT_OPTIONS_VARIABLE,
    ClassArchive,
    record_in_background,
    takes_archives,
)
from twophase.spark.startup.daemon import MODULE
from twophase.spark.startup.java import SHORT_LIVED, java_version
from twophase.spark.startup.progress import show_progress
from twophase.spark.startup.quick_start import DAEMON_KEY, PYTHON_VARIABLE, jvm_environment
from twophase.spark.startup.worker_python import worker_python
from twophase.testing.services.delta import delta_jars, delta_settings

_SINKS, _DELTA = "twophase.sinks", "delta"


def spark_environment(conf: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return environment variables for a process that will start Spark.

    Spark's classes come from the archive, if it has been recorded for the installed Spark, and for
    Delta's jars if they are in the cache.

    Args:
        conf: additional Spark configuration.
    """
    archive = _archive()
    mapping = archive.options() if archive else []
    settings = {DAEMON_KEY: MODULE, **(conf or {})}
    arguments = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return {
        **jvm_environment(archive),
        # Replaces the options that this process itself may have been started with.
        SUBMIT_OPTIONS_VARIABLE: shlex.join([*SHORT_LIVED, *mapping]),
        PYTHON_VARIABLE: str(worker_python()),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
    }


def record_spark_classes() -> None:
    """Record the class archive, which takes about half a minute, if it is due: it pays after
    several starts.

    A JVM that cannot record or read one starts without: Java 21 always does. Delta's classes are in
    it if its jars are in the cache.
    """
    archive = _archive()
    if archive and archive.is_due():
        with show_progress("Recording Spark's classes for faster starts"):
            archive.record(_delta_conf(archive.jars))


def record_spark_classes_behind() -> bool:
    """Record it in a process that outlives this one, and uses only idle processor time.

    Returns:
        Whether it is due; otherwise there is no such process.

    Raises:
        OSError: the process cannot be started.
    """
    archive = _archive()
    if archive is None or not archive.is_due():
        return False
    record_in_background(archive, _delta_conf(archive.jars))
    return True


def _archive() -> ClassArchive | None:
    return ClassArchive(delta_jars()) if takes_archives(java_version()) else None


def _delta_conf(jars: tuple[Path, ...]) -> dict[str, str]:
    [delta] = entry_points(group=_SINKS, name=_DELTA) if jars else [None]
    return {**delta.load().spark_conf(), **delta_settings(jars)} if delta else {}
