"""What tests change of the Spark that they share is as it was afterwards."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from harness.spark_settings import changed

STARTED_WITH = "spark.sql.session.timeZone"
DEFAULT = "spark.sql.streaming.noDataMicroBatches.enabled"
UNKNOWN = "spark.nobody.knows"


@pytest.mark.spark
def test_all_settings_are_reset_even_those_that_spark_was_started_with(spark: SparkSession) -> None:
    others = {STARTED_WITH: "Asia/Tokyo", DEFAULT: "false", UNKNOWN: "one"}
    before = {key: spark.conf.get(key, None) for key in others}
    assert (before[STARTED_WITH], before[UNKNOWN]) == ("UTC", None)

    def fail() -> None:
        with changed(spark, others):
            assert {key: spark.conf.get(key) for key in others} == others
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert {key: spark.conf.get(key, None) for key in others} == before
