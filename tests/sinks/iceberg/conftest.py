"""A table that is open for the first attempt, and a reader of it that is not the product."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from harness.duck import duckdb_with_iceberg
from harness.iceberg_harness import IcebergHarness
from tests.sinks.iceberg.others import FIELDS
from twophase.sinks.iceberg.open_sink import OpenIcebergSink


@pytest.fixture(scope="session")
def duck() -> duckdb.DuckDBPyConnection:
    """DuckDB with its Iceberg extension."""
    return duckdb_with_iceberg()


@pytest.fixture
def harness(tmp_path: Path) -> IcebergHarness:
    return IcebergHarness(tmp_path / "lake", FIELDS)


@pytest.fixture
def sink(harness: IcebergHarness) -> OpenIcebergSink:
    return harness.opened()
