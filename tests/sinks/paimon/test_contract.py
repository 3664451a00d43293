"""The contract of every sink, on a Paimon table in a local warehouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.paimon_harness import PaimonHarness
from harness.selection import representatives
from twophase.testing.contract import (
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    SinkKillContract,
    TellsUnfinishedContract,
)

PACKAGES = ("twophase.sinks.common.lake", "twophase.sinks.common.staging")

pytestmark = [pytest.mark.part("paimon"), pytest.mark.thin(3)]


class TestPaimonSink(
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    TellsUnfinishedContract,
):
    packages = PACKAGES
    lines_at_most = 12

    @pytest.fixture
    def harness(self, tmp_path: Path) -> PaimonHarness:
        return PaimonHarness(tmp_path / "lake")


class TestPaimonSinkIsKilled(SinkKillContract):
    points = representatives(
        [*SinkKillContract.points, "D01=kill", "D02=kill", "F04=kill"],
        {"C05=kill_driver", "D02=kill"},
    )
    methods = representatives(SinkKillContract.methods, {"commit"})
    packages = PACKAGES
    lines_at_most = 12
    preload = ("twophase.sinks.paimon.open_sink",)

    @pytest.fixture
    def harness(self, tmp_path: Path) -> PaimonHarness:
        return PaimonHarness(tmp_path / "lake")


@pytest.mark.proof
class TestPaimonSinkIsKilledAtManyLines(TestPaimonSinkIsKilled):
    points = representatives(["D02=kill"], {"D02=kill"})
    methods = representatives(SinkKillContract.methods, SinkKillContract.methods)
    lines_at_most = 100
