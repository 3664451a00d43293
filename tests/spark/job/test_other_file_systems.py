"""Spark's default file system is not the driver's: the job's folder
stays on the driver's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.job.test_job import Pipeline

pytestmark = pytest.mark.spark


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session whose paths without a scheme are those of another file system, with nothing of
    the driver's in it.
    """
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "elsewhere").mkdir()
    configuration.set(
        "fs.viewfs.mounttable.cluster.link./elsewhere", f"file://{tmp_path / 'elsewhere'}"
    )
    before = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "viewfs://cluster/")
    yield spark
    configuration.set("fs.defaultFS", before)


def test_a_job_runs_and_goes_on(elsewhere: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(elsewhere, tmp_path)
    rows = elsewhere.readStream.schema("id long").json(f"file://{pipeline.input}")
    for _ in range(2):
        pipeline.add()
        pipeline.run(pipeline.writer(rows))
    assert pipeline.ids() == list(range(20))
    assert {path.name for path in (tmp_path / "job" / "spark").glob("*/commits/[0-9]*")} == {
        "0",
        "1",
    }
