"""Shared by all tests: Spark's workers run this very Python and find the same modules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from harness.delta_settings import delta_settings
from harness.hive_settings import hive_settings
from harness.spark_features import why_not
from twophase.internals import redaction
from twophase.spark_versions import DELTA
from twophase.testing.services.spark_start import spark_environment

pytest_plugins = [
    "harness.distribution",
    "harness.cost_ledger",
    "harness.relay_tests",
    "harness.selection",
]

ROOT = Path(__file__).parent
os.environ.update(spark_environment())
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """One Spark for the whole run: two slots, no web UI, Delta and a metastore if any test of the
    run asks for them.

    A process has one Spark, and its jars are chosen when it starts; files of tests share processes.
    """
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    settings = delta_settings() if "delta_spark" in wanted and DELTA.is_here else {}
    settings |= hive_settings(tmp_path_factory.mktemp("hive")) if "hive_spark" in wanted else {}
    session = (
        SparkSession.builder.master("local[2]")
        .appName("twophase-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=settings)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _spark_is_left_as_it_was() -> Iterator[None]:
    """A test that stopped the shared Spark would make others fail, of any file."""
    before = SparkContext._active_spark_context
    yield
    if before is not None and SparkContext._active_spark_context is not before:
        pytest.fail("the test stopped or replaced the Spark that other tests share")


@pytest.fixture(scope="session")
def hive_spark(spark: SparkSession) -> SparkSession:
    """The same Spark, with an embedded metastore."""
    return spark


@pytest.fixture(scope="session")
def delta_spark(spark: SparkSession) -> SparkSession:
    """The same Spark, with Delta in it."""
    if not DELTA.is_here:
        pytest.skip(why_not(DELTA))
    return spark


@pytest.fixture
def redacting(spark: SparkSession) -> Iterator[None]:
    """Values of rows are left out of messages: a setting that stays on for the life of an
    application, for one test.
    """
    spark.conf.set(redaction.SETTING, "true")
    yield
    spark.conf.unset(redaction.SETTING)
    redaction._redacting.clear()
    spark.sparkContext.environment.pop(redaction.VARIABLE, None)
