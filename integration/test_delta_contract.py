"""The contract of every sink, on a Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.delta_harness import DeltaHarness
from twophase.testing.contract import SinkContract

pytestmark = pytest.mark.part("delta")


class TestDeltaSink(SinkContract):
    @pytest.fixture
    def harness(self, delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
        return DeltaHarness(delta_spark, tmp_path / "orders")
