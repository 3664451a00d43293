"""What `test_readers.py` runs, in a process whose JVM is in another zone than UTC:
python -m integration.hive.zone_cases FOLDER.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from harness.hive_settings import hive_settings
from harness.staged_sink_harness import commit
from integration.hive.sink_harness import HiveHarness
from twophase.testing.services.spark_start import spark_environment

_ZONE = " -Duser.timezone=America/New_York"
# Around the hours that its clocks skip and show twice in 2026, and before 1970.
MOMENTS_S = [1_772_953_199, 1_772_953_200, 1_793_511_000, 1_793_514_600, -1, -2_000_000_000]


def main(folder: Path) -> None:
    """Write timestamps; both readers have to see the same moments."""
    settings = hive_settings(folder)
    settings["spark.driver.extraJavaOptions"] += _ZONE
    os.environ.update(spark_environment({**settings, "spark.ui.enabled": "false"}))
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    table = HiveHarness(spark, pa.schema([("at", pa.timestamp("us", "America/New_York"))]))
    table.make("CREATE TABLE {table} ({columns}) STORED AS PARQUET")
    sink = table.opened()
    moments_us = [moment * 10**6 + 123_456 for moment in MOMENTS_S]
    commit(sink, table.write(sink, [{"at": moment} for moment in moments_us]))
    for converts in ("true", "false"):
        spark.conf.set("spark.sql.hive.convertMetastoreParquet", converts)
        found = table.sql("SELECT unix_micros(at) AS us FROM {table}")
        assert sorted(row.us for row in found) == sorted(moments_us), (converts, found)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.write("as it should be\n")
