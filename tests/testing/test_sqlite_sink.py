"""A sink written from the docs alone passes the whole suite, and loses nothing wherever it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.sqlite_harness import SqliteHarness
from twophase.testing.contract import ArrowSinkContract, SinkKillContract


class TestSqliteSink(ArrowSinkContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)


class TestSqliteSinkIsKilled(SinkKillContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)
