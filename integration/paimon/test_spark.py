"""A job of Spark into a Paimon table, killed in a commit: read by pypaimon without the product."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import checker, order_files
from harness.paimon_harness import PaimonHarness
from integration.lake_job import CHECKPOINTS, COUNT, FORMS, kill_and_run_again
from tests.sinks.paimon.others import snapshots


@pytest.mark.spark
@pytest.mark.parametrize("form", FORMS)
def test_a_job_that_is_killed_in_its_second_commit_has_every_order_once(
    tmp_path: Path, form: str
) -> None:
    harness = PaimonHarness(tmp_path / "lake")
    sink = {
        "warehouse": str(harness.folder),
        "table": "shop.orders",
        "create": True,
        "partition_by": ["kafka_partition"],
    }
    kill_and_run_again(tmp_path, form, {"lake": ("paimon", sink)})

    verdict = checker.compare(
        order_files.written(COUNT),
        order_files.records(harness.read().to_pylist()),
    )
    assert verdict.exact, verdict
    assert len(snapshots(harness)) == CHECKPOINTS
    assert harness.staged() == []
