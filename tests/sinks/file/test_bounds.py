"""A condition finds every row that meets it, whatever a reader skips by a file's bounds."""

from __future__ import annotations

from pathlib import Path

import duckdb

from harness import bounds
from harness.staged_sink_harness import FileHarness, commit


def test_duckdb_finds_in_the_files_what_it_finds_in_memory(tmp_path: Path) -> None:
    harness = FileHarness(tmp_path / "orders", bounds.FIELDS)
    sink = harness.opened()
    for checkpoint, rows in enumerate(bounds.files()):
        commit(sink, harness.write(sink, rows, checkpoint))
    scan = f"read_parquet('{harness.path}/*.parquet')"
    assert bounds.missed_by_duckdb(duckdb.connect(), scan) == {}
