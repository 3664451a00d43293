"""The contract of every sink, on a Hive table."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from integration.hive.sink_harness import HiveHarness
from twophase.testing.contract import (
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    PhasesContract,
    RewindContract,
    RewindStepsContract,
    TellsUnfinishedContract,
)
from twophase.testing.contract.sink import DeclaredContract

pytestmark = pytest.mark.part("hive")


class OnHive:
    @pytest.fixture
    def harness(self, hive_spark: SparkSession) -> HiveHarness:
        return HiveHarness(hive_spark, create=True, partition_by=["name"])


class TestHiveSinkInShort(OnHive, PhasesContract, DeclaredContract):
    """What stands for the contract in `make test`."""


@pytest.mark.proof
class TestHiveSink(
    OnHive,
    ArrowSinkContract,
    RewindContract,
    RewindStepsContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    TellsUnfinishedContract,
):
    """All of it."""
