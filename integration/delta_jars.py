"""Delta's jars for the tests, pinned and fetched once, and the settings with which Spark starts with them.

Users let Spark fetch them: `DeltaSink.spark_conf()` names the package.
"""

from __future__ import annotations

from pathlib import Path

from sinks.delta.sink import DeltaSink
from twophase.testing.services.cache import cached
from twophase.testing.services.maven import Coordinate, fetch_jars
from twophase.testing.services.progress import show_progress

_VERSION = "4.4.0"
_COORDINATES = (
    Coordinate("io.delta", "delta-spark_4.2_2.13", _VERSION, transitive=False),
    Coordinate("io.delta", "delta-storage", _VERSION, transitive=False),
)
_PINS = {
    "delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
}


def delta_jars() -> str:
    """Their paths, as `spark.jars` wants them; fetched on first use."""
    return ",".join(str(path) for path in sorted(cached(f"delta-{_VERSION}", _fetch).iterdir()))


def delta_settings() -> dict[str, str]:
    """Spark's settings for Delta, with our jars in place of the package, and what suits tables of a few rows."""
    return {
        **DeltaSink.spark_conf(),
        "spark.jars.packages": "",
        "spark.jars": delta_jars(),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        # Two threads that commit to a local disk at once could otherwise replace each other's commit.
        "spark.databricks.delta.commitLock.enabled": "true",
    }


def _fetch(folder: Path) -> None:
    with show_progress("Fetching Delta") as progress:
        fetch_jars(_COORDINATES, folder, pins=_PINS, progress=progress)
