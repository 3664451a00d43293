"""The contract of every sink, on a Hive table."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from integration.hive_harness import HiveHarness
from twophase.testing.contract import ArrowSinkContract

pytestmark = pytest.mark.part("hive")


class TestHiveSink(ArrowSinkContract):
    @pytest.fixture
    def harness(self, hive_spark: SparkSession) -> HiveHarness:
        return HiveHarness(hive_spark, create=True, partition_by=["name"])
