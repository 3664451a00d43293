"""Coming formats of Spark's checkpoint folder, in both forms, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from harness.folder_sink import FolderSink
from harness.spark_settings import changed
from twophase.errors import PreflightError
from twophase.spark.folder.folder_formats import KNOWN
from twophase.spark.job.stream_writer import write_stream
from twophase.spark.plugin.registration import register

pytestmark = pytest.mark.spark
OTHER = {"1": "2", "false": "true"}


@pytest.mark.parametrize("key", KNOWN)
def test_what_is_known_is_spark_s_default(spark: SparkSession, key: str) -> None:
    try:
        found = spark.conf.get(key)
    except (PySparkException, Py4JJavaError):  # this Spark has no such setting
        return
    assert found == KNOWN[key]


@pytest.mark.parametrize("key", KNOWN)
def test_a_job_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    rows = spark.readStream.format("rate").load()
    job = write_stream(rows, name="orders").sink("facts", FolderSink(tmp_path / "facts"))
    job.option("checkpointLocation", str(tmp_path / "job")).option("restart.strategy", "none")
    with changed(spark, {key: OTHER[KNOWN[key]]}), pytest.raises(PreflightError, match=key):
        job.trigger(availableNow=True).start()
    assert not (tmp_path / "job" / "log").exists()


@pytest.mark.parametrize("key", KNOWN)
def test_a_query_of_the_plugin_form_is_refused_in_start(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    register(spark)
    (tmp_path / "table").mkdir()
    writer = spark.readStream.format("rate").load().select("value").writeStream
    writer = writer.format("twophase-file").option("name", "orders")
    writer = writer.option("path", str(tmp_path / "table"))
    writer = writer.option("checkpointLocation", str(tmp_path / "chk"))
    with changed(spark, {key: OTHER[KNOWN[key]]}), pytest.raises(PreflightError, match=key):
        writer.start()
    assert not (tmp_path / "chk").exists()
