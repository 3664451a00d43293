"""The contract of every sink, on a Hive table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from integration.hive.sink_harness import HiveHarness
from twophase.testing.contract import (
    ArrowSinkContract,
    CompletesPartitionsContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    PhasesContract,
    RewindContract,
    RewindStepsContract,
    TellsUnfinishedContract,
)
from twophase.testing.contract.sink import DeclaredContract
from twophase.testing.harness import Row

pytestmark = pytest.mark.part("hive")


class OnHive:
    @pytest.fixture
    def harness(self, hive_spark: SparkSession) -> HiveHarness:
        return HiveHarness(hive_spark, create=True, partition_by=["name"])


class WaitingHarness(HiveHarness):
    """A table whose partitions wait for a month."""

    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("dt", pa.string())])

    def rows(self, ids: Iterable[int]) -> list[Row]:
        begin = datetime(2026, 8, 1, tzinfo=UTC)
        days = [begin + timedelta(days=number % 2) for number in ids]
        return [
            {"id": number, "at": day, "dt": f"{day:%Y-%m-%d}"}
            for number, day in zip(ids, days, strict=True)
        ]


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
    CompletesPartitionsContract,
):
    """All of it."""

    killed_by = "No suite: its driver needs Spark. The rewind is the file sink's, which is killed."
    packages = ("twophase.sinks.common.staging",)

    @pytest.fixture
    def waiting(self, hive_spark: SparkSession) -> WaitingHarness:
        return WaitingHarness(
            hive_spark,
            WaitingHarness.schema,
            create=True,
            partition_by=["dt"],
            partition_commit_trigger="partition_time",
            partition_time="$dt 00:00:00",
            event_time="at",
            partition_commit_delay="30 d",
        )
