"""Pieces that wait beside a Paimon table are lost, and written again or given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.lake_losses import LostPiecesContract
from harness.memory_driver import SCHEMA
from harness.paimon_harness import PaimonHarness

pytestmark = [pytest.mark.part("repair"), pytest.mark.thin(5)]


class TestAPaimonTable(LostPiecesContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> PaimonHarness:
        return PaimonHarness(tmp_path / "lake", SCHEMA)
