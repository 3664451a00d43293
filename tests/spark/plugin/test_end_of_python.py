"""What a program of the plugin form finds on its standard error: a mistake of a query once, and
nothing from Spark when it ends without `spark.stop()`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

PROGRAM = """
import sys, time, traceback
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent
import twophase
from twophase.spark.plugin.query_start import PassesStarts

root = Path(sys.argv[1])
(root / "input").mkdir()
for number in range(3):
    (root / "input" / f"{number}.json").write_text('{"id": 1}')
PassesStarts.onQueryProgress = lambda *_: time.sleep(1)  # an event is always under way
QueryProgressEvent.fromJObject = lambda *_: print("a report was read for nobody", flush=True)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
twophase.register(spark)
rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
writer = rows.json(str(root / "input")).writeStream.foreachBatch(lambda rows, _: rows.count())
writer = writer.option("checkpointLocation", str(root / "chk")).trigger(availableNow=True)
writer.start().awaitTermination()
options = {"name": "orders", "checkpointLocation": root / "orders", "path": root / "t", "pth": 1}
query = rows.json(str(root / "input")).writeStream.format("twophase-file").options(**options)
try:
    query.trigger(availableNow=True).start().awaitTermination()
except twophase.ConfigError:
    traceback.print_exc()
print("ended", flush=True)
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("program"))],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def test_a_mistake_in_the_options_is_printed_once(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stderr.count("FileSink: unknown option 'pth'") == 1, done.stderr
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert "ERROR" not in done.stderr, done.stderr


def test_no_report_of_progress_is_read_for_nobody(done: subprocess.CompletedProcess[str]) -> None:
    assert "a report was read" not in done.stdout


def test_spark_does_not_report_that_nobody_hears_its_last_events(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.stdout == "ended\n"
    assert "py4j" not in done.stderr.lower(), done.stderr
    assert "refused" not in done.stderr, done.stderr
