"""The contract of every sink, on a Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.delta.sink_harness import DeltaHarness
from twophase.testing.contract import PhasesContract, RewindContract, SinkContract
from twophase.testing.harness import Row

pytestmark = pytest.mark.part("delta")


class PlainlyRead(DeltaHarness):
    """What is visible is looked at often, and Spark takes its time."""

    def rows_visible(self) -> list[Row]:
        return self.rows_of_plain_reader()


class OnDelta:
    @pytest.fixture
    def harness(self, delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
        return PlainlyRead(delta_spark, tmp_path / "orders")


class TestDeltaSinkInShort(OnDelta, PhasesContract):
    """What stands for the contract in `make test`."""


@pytest.mark.proof
class TestDeltaSink(OnDelta, SinkContract, RewindContract):
    """All of it."""
