"""Where a rehearsal lives, and what killed ones leave. The rehearsal itself:
`integration/getting_started/test_first_runs.py`.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from twophase.spark.job import class_archive_rehearsal


def test_what_a_killed_one_has_left_is_deleted_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, running, another_s, not_ours = (
        tmp_path / name for name in ("r-left", "r-running", "r-another", "left")
    )
    monkeypatch.setattr(class_archive_rehearsal, "_PREFIX", "r-")
    for folder in (left, running, another_s, not_ours):
        folder.mkdir()
        (folder / "file").touch()
    if os.geteuid() == 0:
        os.chown(another_s, 12_345, -1)
    for folder in (left, another_s, not_ours):
        os.utime(folder, (time.time() - 90_000,) * 2)
    (tmp_path / "r-link").symlink_to(not_ours)
    os.utime(tmp_path / "r-link", (0, 0), follow_symlinks=False)
    class_archive_rehearsal._delete_abandoned()
    assert not left.exists()
    assert {path.name for path in (running, not_ours) if (path / "file").exists()} == {
        "r-running",
        "left",
    }
    assert another_s.exists() == (os.geteuid() == 0)


@pytest.mark.parametrize("is_gone", [False, True], ids=["there", "gone"])
def test_it_lives_where_it_was_started_unless_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """What the environment names by a relative path is there."""
    start, spare = tmp_path / "start", tmp_path / "spare"
    start.mkdir()
    spare.mkdir()
    monkeypatch.chdir(start)
    if is_gone:
        start.rmdir()
    class_archive_rehearsal._leave_a_folder_that_is_gone(str(spare))
    assert Path.cwd() == (spare if is_gone else start)
