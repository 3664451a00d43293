"""The folder sink keeps the contract, so tests that use it across processes mean something."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.folder_sink import FolderSink, FolderTarget
from harness.selection import representatives
from twophase.testing.contract import (
    ArrowSinkContract,
    KnowsOtherNamesContract,
    RewindContract,
    RewindKillContract,
    SinkKillContract,
)
from twophase.testing.harness import Row, SinkHarness, contents_of, fresh_name

pytestmark = pytest.mark.part("contract")


class FolderHarness(SinkHarness):
    def __init__(self, root: Path) -> None:
        self.root = root

    def new_sink(self) -> FolderSink:
        return FolderSink(self.root)

    def elsewhere(self) -> FolderHarness:
        return FolderHarness(self.root.parent / fresh_name("folder"))

    def contents(self) -> dict[str, bytes | None]:
        return contents_of(self.root)

    def rows_visible(self) -> list[Row]:
        return FolderTarget(self.root).rows()


@pytest.mark.proof
class TestFolderSinkIsKilledInARewind(RewindKillContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> FolderHarness:
        return FolderHarness(tmp_path / "target")


class TestFolderSink(ArrowSinkContract, KnowsOtherNamesContract, RewindContract):
    killed_by = TestFolderSinkIsKilledInARewind

    @pytest.fixture
    def harness(self, tmp_path: Path) -> FolderHarness:
        return FolderHarness(tmp_path / "target")


class TestFolderSinkIsKilled(SinkKillContract):
    points = representatives(SinkKillContract.points, {"C13=kill"})
    methods = representatives(SinkKillContract.methods, set())

    @pytest.fixture
    def harness(self, tmp_path: Path) -> FolderHarness:
        return FolderHarness(tmp_path / "target")
