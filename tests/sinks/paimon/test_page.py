"""The job file on the sink's page, where pypaimon is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.paimon_environment import needs_paimon
from tests.docs.test_code_blocks import job_files
from twophase.cli.jobfile.job_file import load_job_file


@needs_paimon()
@pytest.mark.parametrize("place", [place for place in job_files() if "paimon" in place])
def test_the_job_file_of_the_page_is_accepted(place: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(job_files()[place])
    assert load_job_file(path, {}).sinks
