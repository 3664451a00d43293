"""A driver process of two jobs that keep state, to be run by one version of PySpark after another.

    python -m integration.versions.driver '{"input": ..., "root": ...}'

`unique` keeps Spark's state, `counts` that of a function in Python. One after the other they read
JSON files with numbers, one file in a micro-batch, until there are no more.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import twophase
from harness.counts import counts
from harness.folder_sink import FolderSink
from integration.mysql.driver import session
from twophase.errors import TwoPhaseError
from twophase.internals.failpoints import be_the_driver
from twophase.testing.parent_death import die_with_parent
from twophase.testing.services.spark_start import spark_environment

NUMBERS = 25


def unique(frame: DataFrame) -> DataFrame:
    """Each remainder once."""
    return frame.select((F.col("id") % NUMBERS).alias("id")).dropDuplicates(["id"])


PLANS: dict[str, Callable[[DataFrame], DataFrame]] = {"unique": unique, "counts": counts}


def main(settings: dict[str, str]) -> int:
    """Run both jobs; return the exit code of the first that fails."""
    os.environ.update(spark_environment())
    be_the_driver()
    die_with_parent()
    spark = session("local[2]")
    try:
        for name in PLANS:
            run(spark, name, settings)
    except TwoPhaseError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    spark.stop()
    return 0


def run(spark: SparkSession, name: str, settings: dict[str, str]) -> None:
    """One job, as a user would write it."""
    root = Path(settings["root"])
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    (
        twophase.write_stream(PLANS[name](rows.json(settings["input"])), name=name)
        .sink("facts", FolderSink(root / "targets" / name))
        .option("checkpointLocation", str(root / "jobs" / name))
        .option("state.backend", "rocksdb")
        .option("restart.strategy", "none")
        .trigger(availableNow=True)
        .start()
        .await_termination()
    )


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
