"""The settings for Spark with an embedded metastore."""

from __future__ import annotations

from pathlib import Path

from twophase.testing.harness import fresh_name


def hive_settings(folder: Path, metastore: str = "") -> dict[str, str]:
    """Return the settings for Spark with an embedded metastore, and its warehouse in a folder.

    Args:
        folder: for both.
        metastore: Derby's name of the metastore; by default it is in memory.
    """
    metastore = metastore or f"memory:{fresh_name('metastore')}"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{metastore};create=true",
        # Without a sync after each statement: the metastore's writes survive a SIGKILL, and no
        # test cuts the power.
        "spark.driver.extraJavaOptions": (
            f"-Dderby.system.durability=test -Dderby.stream.error.file={folder / 'derby.log'}"
        ),
    }
