"""Pieces that wait beside an Iceberg table are lost, and written again or given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.lake_losses import LostPiecesContract
from harness.memory_driver import SCHEMA

pytestmark = [pytest.mark.part("repair"), pytest.mark.thin(5)]


class TestAnIcebergTable(LostPiecesContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> IcebergHarness:
        return IcebergHarness(tmp_path / "lake", SCHEMA)
