"""A job of Spark into an Iceberg table, killed in a commit: read by pyiceberg and DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import checker, order_files
from harness.duck import duckdb_with_iceberg
from harness.iceberg_harness import IcebergHarness
from harness.nemesis import DriverProcess

_CHECKPOINTS = 3


class Driver(DriverProcess):
    module = "integration.lake_driver"


@pytest.mark.spark
@pytest.mark.parametrize("point", ["D02"])
def test_a_job_that_is_killed_in_its_second_commit_has_every_order_once(
    tmp_path: Path, point: str
) -> None:
    orders = tmp_path / "orders"
    orders.mkdir()
    for number in range(_CHECKPOINTS):
        order_files.write_orders(orders, number * order_files.BATCH)
    fields = ["kafka_partition", "bucket[4](customer)"]
    harness = IcebergHarness(tmp_path / "lake", partition_by=fields)
    settings = {
        "orders": str(orders),
        "location": str(tmp_path / "job"),
        "type": "iceberg",
        "sink": {
            "catalog_uri": f"sqlite:///{harness.folder}/catalog.db",
            "warehouse": str(harness.folder / "warehouse"),
            "table": "shop.orders",
            "create": True,
            "partition_by": fields,
        },
    }
    killed = Driver(settings, tmp_path / "runs", f"{point}=kill@2").wait(600)
    assert killed.killed, killed.output
    ended = Driver(settings, tmp_path / "runs").wait(600)
    assert ended.code == 0, ended.output

    table = harness.table()
    found = table.scan().to_arrow()
    verdict = checker.compare(
        order_files.written(_CHECKPOINTS * order_files.BATCH),
        order_files.records(found.to_pylist()),
    )
    assert verdict.exact, verdict
    assert len(table.metadata.snapshots) == _CHECKPOINTS
    query = f"SELECT count(*), count(DISTINCT id) FROM iceberg_scan('{table.metadata_location}')"
    count = _CHECKPOINTS * order_files.BATCH
    assert duckdb_with_iceberg().execute(query).fetchall() == [(count, count)]
    assert harness.staged() == []
