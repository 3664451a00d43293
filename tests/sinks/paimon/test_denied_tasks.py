"""A task whose account may not write a table's folder: see `tests/sinks/common`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.denied_tasks import ends_and_goes_on
from harness.paimon_harness import PaimonHarness


def test_a_task_that_may_not_write_ends_the_job_and_allowed_to_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = PaimonHarness(tmp_path / "lake")
    ends_and_goes_on(harness, tmp_path / "lake", tmp_path / "job", monkeypatch)
