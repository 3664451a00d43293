"""`spark-submit app.py`, where pyspark is an archive on the path: a program of each form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.order_files import parquet_rows
from twophase.spark.startup.java import spark_home

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

PROGRAM = """
import sys
from pathlib import Path
import pyspark
from pyspark.sql import SparkSession
import twophase
from twophase.sinks.file import FileSink

root = Path(sys.argv[1])
assert ".zip" in pyspark.__file__, pyspark.__file__
(root / "input").mkdir()
(root / "input" / "one.json").write_text('{"id": 1}')
spark = SparkSession.builder.getOrCreate()
twophase.register(spark)
rows = spark.readStream.schema("id long").json(str(root / "input"))
job = twophase.write_stream(rows, name="job").sink("facts", FileSink(path=str(root / "of the job")))
job = job.option("checkpointLocation", str(root / "job")).trigger(availableNow=True).start()
job.await_termination()
writer = rows.writeStream.format("twophase-file").trigger(availableNow=True)
options = {"name": "query", "path": root / "of the query", "checkpointLocation": root / "query"}
writer.options(**options).start().awaitTermination()
"""


def test_both_forms_write_from_a_program_that_is_submitted(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR"]
    done = subprocess.run(
        [f"{spark_home()}/bin/spark-submit", "--master", "local[1]", *conf, program, tmp_path],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert [parquet_rows(tmp_path / f"of the {form}") for form in ("job", "query")] == [1, 1]
