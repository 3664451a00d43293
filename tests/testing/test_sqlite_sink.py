"""A sink written from the docs alone passes the whole suite, and loses nothing
wherever it is killed.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from harness.selection import representatives
from tests.testing import sqlite_sink
from tests.testing.sqlite_harness import SqliteHarness
from twophase.testing.contract import (
    ArrowSinkContract,
    NamesPiecesContract,
    RewindContract,
    RewindKillContract,
    SinkKillContract,
)

pytestmark = pytest.mark.part("contract")


class TestSqliteSink(ArrowSinkContract, NamesPiecesContract, RewindContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)

    @pytest.mark.proof
    def test_a_fence_between_any_two_lines_of_pre_commit_counts(self, arrow):
        super().test_a_fence_between_any_two_lines_of_pre_commit_counts(arrow)


class TestSqliteSinkIsKilled(SinkKillContract):
    methods = representatives(SinkKillContract.methods, set())

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)


@pytest.mark.proof
class TestSqliteSinkIsKilledInARewind(RewindKillContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)


def test_an_author_of_a_sink_imports_from_the_package_alone() -> None:
    tree = ast.parse(Path(sqlite_sink.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("twophase")} == {"twophase"}
