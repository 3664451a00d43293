"""Readers of a table that are not the product."""

from __future__ import annotations

import duckdb
import pytest

from harness.duck import duckdb_with_iceberg


@pytest.fixture(scope="session")
def duck() -> duckdb.DuckDBPyConnection:
    """DuckDB with its Iceberg extension."""
    return duckdb_with_iceberg()
