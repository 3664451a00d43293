"""A task whose account may not write a table's folder, though the driver's may: each sink of files
ends the job in the end, and goes on when it may. Paimon: `tests/sinks/paimon/test_denied_tasks.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.denied_tasks import ends_and_goes_on
from harness.iceberg_harness import IcebergHarness
from harness.staged_sink_harness import FileHarness


@pytest.mark.parametrize("kind", ["file", "iceberg"])
def test_a_task_that_may_not_write_ends_the_job_and_allowed_to_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / "lake"
    harness = FileHarness(folder) if kind == "file" else IcebergHarness(folder)
    ends_and_goes_on(harness, folder, tmp_path / "job", monkeypatch)
