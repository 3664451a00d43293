"""A job of Spark into a Paimon table, killed in a commit: read by pypaimon without the product."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import checker, order_files
from harness.nemesis import DriverProcess
from harness.paimon_harness import PaimonHarness
from tests.sinks.paimon.others import snapshots

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
    harness = PaimonHarness(tmp_path / "lake")
    settings = {
        "orders": str(orders),
        "location": str(tmp_path / "job"),
        "type": "paimon",
        "sink": {
            "warehouse": str(harness.folder),
            "table": "shop.orders",
            "create": True,
            "partition_by": ["kafka_partition"],
        },
    }
    killed = Driver(settings, tmp_path / "runs", f"{point}=kill@2").wait(600)
    assert killed.killed, killed.output
    ended = Driver(settings, tmp_path / "runs").wait(600)
    assert ended.code == 0, ended.output

    verdict = checker.compare(
        order_files.written(_CHECKPOINTS * order_files.BATCH),
        order_files.records(harness.read().to_pylist()),
    )
    assert verdict.exact, verdict
    assert len(snapshots(harness)) == _CHECKPOINTS
    assert harness.staged() == []
