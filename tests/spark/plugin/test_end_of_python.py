"""A program that ends without `spark.stop()` ends without a word from Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

PROGRAM = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import twophase
from twophase.spark.plugin.query_start import FinishCommitted

root = Path(sys.argv[1])
(root / "input").mkdir()
for number in range(3):
    (root / "input" / f"{number}.json").write_text('{"id": 1}')
FinishCommitted.onQueryProgress = lambda *_: time.sleep(1)  # an event is always under way
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
twophase.register(spark)
rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
writer = rows.json(str(root / "input")).writeStream.foreachBatch(lambda rows, _: rows.count())
writer = writer.option("checkpointLocation", str(root / "chk")).trigger(availableNow=True)
writer.start().awaitTermination()
print("ended", flush=True)
"""


def test_spark_does_not_report_that_nobody_hears_its_last_events(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == "ended\n"
    assert "py4j" not in done.stderr.lower(), done.stderr
    assert "refused" not in done.stderr, done.stderr
