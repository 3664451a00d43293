"""A condition finds every row that meets it, whatever a reader skips by the bounds in manifests and
in data files.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
from pyiceberg.expressions import BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal

from harness import bounds
from harness.iceberg_harness import IcebergHarness
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest


def written(folder: Path) -> IcebergHarness:
    harness = IcebergHarness(folder, bounds.FIELDS)
    sink = harness.opened()
    for checkpoint, rows in enumerate(bounds.files()):
        piece = harness.write(sink, rows, checkpoint)
        assert sink.commit([CommitRequest(piece)]) == [Committed()]
    sink.close()
    return harness


def test_duckdb_finds_in_the_files_what_it_finds_in_memory(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    location = written(tmp_path / "lake").table().metadata_location
    assert bounds.missed_by_duckdb(duck, f"iceberg_scan('{location}')") == {}


def test_pyiceberg_finds_rows_by_each_of_their_values(tmp_path: Path) -> None:
    table = written(tmp_path / "lake").table()
    rows = [row for file in bounds.files() for row in file]
    wanted: dict[str | BooleanExpression, list[int]] = {
        "double is nan": [1, 2, 3, 5],
        "double is not nan": [0, 6, 7, 8, 9, 10, 11, 12, 13],
        "double > 1000.0": [13],  # to pyiceberg NaN is no number
        "double = 0.0": [6, 9, 10, 11],
    }
    for column in ("text", "bytes"):
        for value in {row[column] for row in rows} - {None}:
            is_it = EqualTo(term=Reference(column), value=literal(value))
            wanted[is_it] = [row["id"] for row in rows if row[column] == value]
    for condition, ids in wanted.items():
        found = table.scan(row_filter=condition).to_arrow().column("id").to_pylist()
        assert sorted(found) == ids, condition
