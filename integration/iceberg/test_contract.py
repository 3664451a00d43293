"""The contract of every sink, on a table in each kind of catalog that is behind a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.iceberg_harness import IcebergHarness
from integration.catalogs import KINDS, place_of
from tests.sinks.iceberg.test_contract import PACKAGES
from twophase.testing.contract import (
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
    TellsUnfinishedContract,
)
from twophase.testing.contract.declared import BeforeOpenContract
from twophase.testing.contract.sink import (
    AbortContract,
    DeclaredContract,
    FenceContract,
    LookContract,
    PhasesContract,
    PredecessorContract,
    ProofContract,
)

pytestmark = [pytest.mark.part("files"), pytest.mark.server, pytest.mark.thin(3)]


class TestIcebergSinkInEachCatalog(
    DeclaredContract,
    BeforeOpenContract,
    LookContract,
    PhasesContract,
    PredecessorContract,
    AbortContract,
    FenceContract,
    ProofContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
    TellsUnfinishedContract,
):
    killed_by = "tests.sinks.iceberg.test_contract:TestARewindOfAnIcebergTableIsKilled"
    packages = PACKAGES
    lines_at_most = 4

    @pytest.fixture(params=KINDS)
    def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> IcebergHarness:
        return IcebergHarness(place_of(request.param, request, tmp_path))
