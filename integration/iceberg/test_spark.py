"""A job of Spark into an Iceberg table, killed in a commit: read by pyiceberg and DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import checker, order_files
from harness.duck import duckdb_with_iceberg
from harness.iceberg_harness import IcebergHarness
from integration.lake_job import CHECKPOINTS, COUNT, FORMS, kill_and_run_again


@pytest.mark.spark
@pytest.mark.parametrize("form", FORMS)
def test_a_job_that_is_killed_in_its_second_commit_has_every_order_once(
    tmp_path: Path, form: str
) -> None:
    fields = ["kafka_partition", "bucket[4](customer)"]
    harness = IcebergHarness(tmp_path / "lake", partition_by=fields)
    sink = {
        "catalog_uri": f"sqlite:///{harness.folder}/catalog.db",
        "warehouse": str(harness.folder / "warehouse"),
        "table": "shop.orders",
        "create": True,
        "partition_by": fields,
    }
    kill_and_run_again(tmp_path, form, {"lake": ("iceberg", sink)})

    table = harness.table()
    found = table.scan().to_arrow()
    verdict = checker.compare(
        order_files.written(COUNT),
        order_files.records(found.to_pylist()),
    )
    assert verdict.exact, verdict
    assert len(table.metadata.snapshots) == CHECKPOINTS
    query = f"SELECT count(*), count(DISTINCT id) FROM iceberg_scan('{table.metadata_location}')"
    assert duckdb_with_iceberg().execute(query).fetchall() == [(COUNT, COUNT)]
    assert harness.staged() == []
