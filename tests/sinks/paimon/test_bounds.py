"""A condition finds every row that meets it, whatever a reader skips by a file's bounds."""

from __future__ import annotations

from pathlib import Path

import duckdb

from harness import bounds
from harness.paimon_harness import PaimonHarness
from tests.sinks.paimon.others import committed
from twophase.contract.outcome import Committed


def test_duckdb_finds_in_the_files_what_it_finds_in_memory(tmp_path: Path) -> None:
    harness = PaimonHarness(tmp_path / "lake", bounds.FIELDS)
    sink = harness.opened()
    for checkpoint, rows in enumerate(bounds.files()):
        assert committed(sink, harness.write(sink, rows, checkpoint)) == [Committed()]
    scan = f"read_parquet('{harness.location}/bucket-0/*.parquet')"
    assert bounds.missed_by_duckdb(duckdb.connect(), scan) == {}
