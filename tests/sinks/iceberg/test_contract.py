"""The contract of every sink, on an Iceberg table in an SQLite catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.selection import representatives
from twophase.testing.contract import (
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
    RewindKillContract,
    SinkKillContract,
    TellsUnfinishedContract,
)

PACKAGES = ("twophase.sinks.common.lake", "twophase.sinks.common.staging")

pytestmark = [pytest.mark.part("files"), pytest.mark.thin(3)]


class TestARewindOfAnIcebergTableIsKilled(RewindKillContract):
    packages = PACKAGES
    lines_at_most = 12

    @pytest.fixture
    def harness(self, tmp_path: Path) -> IcebergHarness:
        return IcebergHarness(tmp_path / "lake")


class TestIcebergSink(
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
    TellsUnfinishedContract,
):
    killed_by = TestARewindOfAnIcebergTableIsKilled
    packages = PACKAGES
    lines_at_most = 12

    @pytest.fixture
    def harness(self, tmp_path: Path) -> IcebergHarness:
        return IcebergHarness(tmp_path / "lake")


class TestIcebergSinkIsKilled(SinkKillContract):
    points = representatives(
        [*SinkKillContract.points, "D01=kill", "D02=kill"], {"C05=kill_driver", "D02=kill"}
    )
    methods = representatives(SinkKillContract.methods, {"commit"})
    packages = PACKAGES
    lines_at_most = 12
    preload = ("twophase.sinks.iceberg.open_sink",)

    @pytest.fixture
    def harness(self, tmp_path: Path) -> IcebergHarness:
        return IcebergHarness(tmp_path / "lake")


@pytest.mark.proof
class TestIcebergSinkIsKilledAtManyLines(TestIcebergSinkIsKilled):
    points = representatives(["D02=kill"], {"D02=kill"})
    methods = representatives(SinkKillContract.methods, SinkKillContract.methods)
    lines_at_most = 100
