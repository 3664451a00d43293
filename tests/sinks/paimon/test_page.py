"""What the sink's page shows, where pypaimon is."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from harness.paimon_harness import PaimonHarness
from tests.docs.test_code_blocks import blocks, job_files
from tests.sinks.paimon.others import PARTED, committed, parted
from twophase.cli.jobfile.job_file import load_job_file


@pytest.mark.parametrize("place", [place for place in job_files() if "paimon" in place])
def test_the_job_file_of_the_page_is_accepted(place: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(job_files()[place])
    assert load_job_file(path, {}).sinks


def test_the_page_s_look_at_a_table_tells_what_a_checkpoint_has(tmp_path: Path) -> None:
    harness = PaimonHarness(tmp_path / "lake", PARTED, partition_by=["part"])
    sink = harness.opened()
    committed(sink, harness.write(sink, parted(1, 2, 4), 7))
    harness.append(parted(100))
    [code] = [text for text in blocks("python").values() if "orders$snapshots" in text]
    shown: dict[str, object] = {}
    with redirect_stdout(io.StringIO()) as printed:
        exec(code.replace("/lake", str(harness.folder)), shown)
    [ours, _] = shown["snapshots"].to_pylist()  # type: ignore[attr-defined]
    assert ours["commit_user"].startswith("twophase~contract~facts~")
    assert (ours["commit_identifier"], ours["delta_record_count"]) == (7, 3)
    files = {
        (row["partition"], row["record_count"])
        for row in shown["files"].to_pylist()  # type: ignore[attr-defined]
        if Path(row["file_path"]).name.startswith("twophase-")
    }
    assert files == {("part=odd", 1), ("part=even", 2)}
    assert "commit_identifier" in printed.getvalue()
