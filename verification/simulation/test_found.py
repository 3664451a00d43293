"""What the simulation has found in the product, each as the smallest case that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver, completed_of, restoring, visible
from twophase.contract.sink import SinkHistory
from twophase.errors import FencedError, RestoreRefusedError
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import FenceRecord, Lineage
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget


def test_a_driver_that_saw_an_empty_log_is_fenced_after_the_log_was_folded(tmp_path: Path) -> None:
    """It stands still before its first record. The place is free again when it goes on, and
    has no predecessor.
    """
    late, rival = (JobLog(LocalStorage(tmp_path / "job"), JOB) for _ in range(2))
    late.read()
    rival.read()
    rival.append(FenceRecord(1))
    rival.append(Lineage("a"))
    rival.fold(rival.history)
    with pytest.raises(FencedError, match="its log was empty when it was read"):
        late.append(FenceRecord(1))
    assert JobLog(LocalStorage(tmp_path / "job"), JOB).read() == rival.history


def test_a_restore_is_refused_if_the_old_driver_commits_while_the_new_one_starts(
    tmp_path: Path,
) -> None:
    """Otherwise its last checkpoint would be written twice: by it, and by the new lineage."""
    targets = {"facts": MemoryTarget()}
    old = Driver(tmp_path / "job", targets).recover()
    for number in (0, 1):
        old.run(number)
    restore = restoring(completed_of(tmp_path / "job", 1), committed=True)
    new = Driver(tmp_path / "job", targets)
    real = new.sinks["facts"].history
    asked: list[SinkHistory] = []

    def history() -> SinkHistory:
        found = real()
        if not asked:
            asked.append(found)
            old.run(2)
        return found

    sink: Any = new.sinks["facts"]
    sink.history = history
    with pytest.raises(RestoreRefusedError, match="is decided and is committed"):
        new.coordinator.recover(restore=restore)
    assert visible(targets["facts"]) == list(range(30))
    old.run(3)
