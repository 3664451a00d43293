"""A driver process of two jobs that keep state, to be run by one version of PySpark after another.

    python -m integration.versions.driver '{"root": ..., "source": {"format": "json", ...}}'

`unique` keeps Spark's state, `counts` that of a function in Python. One after the other they read
numbers until there are no more: JSON files, or records of Kafka by one of two sources.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import twophase
from benchmarks.jars import peer_jars
from harness.counts import counts
from harness.folder_sink import FolderSink
from integration.mysql.driver import session
from twophase.errors import TwoPhaseError
from twophase.internals.failpoints import be_the_driver
from twophase.testing.parent_death import die_with_parent
from twophase.testing.services.spark_start import spark_environment

NUMBERS = 25
STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
FILES, SPARK_S_KAFKA, OUR_KAFKA = "json", "kafka", "twophase-kafka"
"""The formats to read from."""


def unique(frame: DataFrame) -> DataFrame:
    """Each remainder once."""
    return frame.select((F.col("id") % NUMBERS).alias("id")).dropDuplicates(["id"])


PLANS: dict[str, Callable[[DataFrame], DataFrame]] = {"unique": unique, "counts": counts}


def main(settings: dict[str, Any]) -> int:
    """Run both jobs; return the exit code of the first that fails."""
    by_spark = settings["source"]["format"] == SPARK_S_KAFKA
    os.environ.update(spark_environment({"spark.jars": peer_jars()} if by_spark else {}))
    be_the_driver()
    die_with_parent()
    spark = session("local[2]")
    spark.conf.set(STATE_FORMAT, settings["state_format"])
    try:
        for name in PLANS:
            run(spark, name, settings)
    except TwoPhaseError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    spark.stop()
    return 0


def read(spark: SparkSession, source: dict[str, Any]) -> DataFrame:
    """Return the numbers."""
    rows = spark.readStream.format(source["format"]).options(**source["options"])
    if source["format"] == FILES:
        return rows.schema("id long").load()
    if source["format"] == OUR_KAFKA:
        rows = rows.schema("value binary")
    return rows.load().select(F.col("value").cast("string").cast("long").alias("id"))


def run(spark: SparkSession, name: str, settings: dict[str, Any]) -> None:
    """One job, as a user would write it."""
    root = Path(settings["root"])
    (
        twophase.write_stream(PLANS[name](read(spark, settings["source"])), name=name)
        .sink("facts", FolderSink(root / "targets" / name))
        .option("checkpointLocation", str(root / "jobs" / name))
        .option("state.backend", "rocksdb")
        .options(**settings["options"])
        .trigger(availableNow=True)
        .start()
        .await_termination()
    )


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
