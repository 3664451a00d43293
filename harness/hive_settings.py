"""The settings with which Spark starts with an embedded metastore."""

from __future__ import annotations

from pathlib import Path

from twophase.testing.harness import fresh_name


def hive_settings(folder: Path, metastore: str = "") -> dict[str, str]:
    """Of a Spark with an embedded metastore, and its warehouse in a folder.

    Args:
        folder: for both.
        metastore: Derby's name of the metastore; without one it lives in memory.
    """
    metastore = metastore or f"memory:{fresh_name('metastore')}"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{metastore};create=true",
        # Without a sync after each statement: what the metastore has written outlives a SIGKILL, and no test cuts the power.
        "spark.driver.extraJavaOptions": f"-Dderby.system.durability=test -Dderby.stream.error.file={folder / 'derby.log'}",
    }
