"""A job whose tasks may not write where its driver may."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.one_sink_job import OneSinkJob
from harness.rights import permissions_checked
from twophase.contract.committable import Committable
from twophase.testing.harness import SinkHarness
from twophase.testing.plain_host import Task


def ends_and_goes_on(
    harness: SinkHarness, table: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the job ends with the error that says so, and goes on when its tasks may write.

    Args:
        harness: the target.
        table: the folder that its staging area is in.
        folder: the job's.
        monkeypatch: of the test.
    """
    run = Task.run

    def denied(task: Task) -> Committable | None:
        for staged in table.rglob("fence-*/staged"):
            staged.chmod(0o555)
        with permissions_checked():
            return run(task)

    batches = [[harness.rows([1])]]
    with monkeypatch.context() as patch:
        patch.setattr(Task, "run", denied)
        error = OneSinkJob(harness, folder, batches).run_until_repeated()
    assert "cannot be written" in error.what
    assert "is writable" in error.remedy
    assert harness.rows_visible() == []
    assert OneSinkJob(harness, folder, batches).run() is None
    assert [row["id"] for row in harness.rows_visible()] == [1]
