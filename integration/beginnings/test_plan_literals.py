"""A plan with state holds a secret, such as the salt of a hash: nothing that is kept shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from harness.beginning_world import refused
from tests.spark.job.test_job import Pipeline
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.make import SavepointMaker

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

SECRET, OTHER = "pepper-4711", "pepper-0815"


def _salted(secret: str) -> F.Column:  # type: ignore[name-defined]
    return F.sha2(F.concat(F.col("id").cast("string"), F.lit(secret)), 256)


def unique(frame: DataFrame, secret: str) -> DataFrame:
    """The salt defines a key."""
    return frame.withColumn("key", _salted(secret)).dropDuplicates(["key"]).select("id")


def counted(frame: DataFrame, secret: str) -> DataFrame:
    """The salt stands in a grouping expression."""
    timed = frame.withColumn("time", F.timestamp_seconds("id")).withWatermark("time", "2 seconds")
    by_window = timed.groupBy(F.window("time", "10 seconds"), _salted(secret)).count()
    return by_window.select(F.unix_seconds("window.start").alias("id"))


def joined(frame: DataFrame, secret: str) -> DataFrame:
    """The salt stands in the condition of a join."""
    later = frame.select((F.col("id") - 10).alias("other"))
    unsalted = F.concat(F.col("id").cast("string"), F.lit(secret)) != F.col("other").cast("string")
    same = (F.col("id") == F.col("other")) & unsalted
    return frame.join(later, same).select("id")


class Secretive(Pipeline):
    """A pipeline with a secret in its plan."""

    build: Callable[[DataFrame, str], DataFrame]
    secret = SECRET

    def frame(self) -> DataFrame:
        return type(self).build(super().frame(), self.secret)


PLANS = {"unique": unique, "counted": counted, "joined": joined}


@pytest.mark.parametrize("plan", PLANS)
def test_a_literal_of_a_plan_with_state_is_kept_nowhere_and_shown_nowhere(
    spark: SparkSession, tmp_path: Path, plan: str, redacting: None
) -> None:
    """My keys are salted with a secret: no file of the job, of a savepoint or of a message has it.
    With another secret the job is refused; with the old one it goes on.
    """
    kind = type("OfPlan", (Secretive,), {"build": staticmethod(PLANS[plan])})
    pipeline = kind(spark, tmp_path)
    pipeline.add()
    pipeline.run()
    SavepointMaker("orders", tmp_path / "job", SystemClock()).make(
        str(tmp_path / "saved"), still_waiting=lambda: False
    )
    with_it = [
        str(path)
        for path in tmp_path.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert with_it == []
    pipeline.add()
    pipeline.secret = OTHER
    with refused(tmp_path) as caught:
        pipeline.run()
    for secret in (SECRET, OTHER):
        assert secret not in f"{caught.value} {caught.value.remedy}"
    pipeline.secret = SECRET
    pipeline.run()
