"""The contract of every sink, on a folder of files in each format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from harness.selection import representatives
from harness.staged_sink_harness import FileHarness
from twophase.testing.contract import (
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
    RewindStepsContract,
    RewindStepsKillContract,
    SinkKillContract,
    TellsUnfinishedContract,
)
from twophase.testing.contract.sink import RowContract

PACKAGES = ("twophase.sinks.common.staging",)

pytestmark = pytest.mark.part("files")


class TestFileSinkIsKilledInARewind(RewindStepsKillContract):
    packages = PACKAGES
    lines_at_most = 12

    @pytest.fixture
    def harness(self, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path / "orders")


class WholeContract(
    ArrowSinkContract,
    RewindContract,
    RewindStepsContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    TellsUnfinishedContract,
):
    """With all optional powers."""

    killed_by = TestFileSinkIsKilledInARewind
    packages = PACKAGES
    lines_at_most = 12


class TestFileSink(WholeContract):
    @pytest.fixture(params=representatives(["parquet", "orc", "json", "csv"], {"parquet"}))
    def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path / "orders", format=request.param)


class TimedHarness(FileHarness):
    schema = FileHarness.schema.append(pa.field("at", pa.timestamp("us", "UTC")))


class TestFileSinkWithTimes(RowContract):
    @pytest.fixture(params=representatives(["parquet", "json", "csv"], {"parquet"}))
    def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> FileHarness:
        return TimedHarness(tmp_path / "orders", format=request.param)


@pytest.mark.proof
class TestPartitionedFileSink(WholeContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path / "orders", partition_by=["name"])


class TestFileSinkIsKilled(SinkKillContract):
    points = representatives(SinkKillContract.points, {"C05=kill_driver", "C13=kill"})
    methods = representatives(SinkKillContract.methods, {"commit"})
    packages = PACKAGES
    lines_at_most = 12

    @pytest.fixture
    def harness(self, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path / "orders")


@pytest.mark.proof
class TestFileSinkIsKilledAtManyLines(TestFileSinkIsKilled):
    points = representatives(["C13=kill"], {"C13=kill"})
    methods = representatives(SinkKillContract.methods, SinkKillContract.methods)
    lines_at_most = 400
