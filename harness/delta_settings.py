"""The settings for Spark with Delta in tests: jars from the cache instead of the package.

Users let Spark fetch them: `DeltaSink.spark_conf()` names the package.
"""

from __future__ import annotations

from twophase.sinks.delta.sink import DeltaSink
from twophase.testing.services.delta import fetch_delta


def delta_settings() -> dict[str, str]:
    """Return Spark's settings for Delta, tuned for tables of a few rows."""
    return {
        **DeltaSink.spark_conf(),
        **fetch_delta(),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        # Two threads that commit to a local disk at once could otherwise replace
        # each other's commit.
        "spark.databricks.delta.commitLock.enabled": "true",
    }
