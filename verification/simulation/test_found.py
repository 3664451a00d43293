"""What the simulation has found in the product, each as the smallest case that shows it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver, ManualClock, completed_of, restoring, visible
from twophase.contract.sink import SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine import driver as engine
from twophase.engine.host import Plan
from twophase.errors import FencedError, InDoubtError, RestoreRefusedError
from twophase.events import Observers
from twophase.options.job_options import JobOptions
from twophase.state.files.storage import (
    NO_CRASH_POINTS,
    CrashPoints,
    LocalStorage,
    UnclearOutcomeError,
)
from twophase.state.journal.entries import FenceRecord, Lineage
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink


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


class _RepliesLost(LocalStorage):
    """Its second record is written, and the reply is lost."""

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        super().create(name, data, crash_points)
        if name == "log/0000000002":
            raise UnclearOutcomeError(name)


def test_a_record_in_doubt_is_not_taken_for_that_of_a_rival(tmp_path: Path) -> None:
    """That of a lineage which begins: the job would stop for good, as if it had been overtaken."""

    def begin(coordinator: CheckpointCoordinator) -> None:
        coordinator.begin_lineage(Lineage("a"))

    beginning = SimpleNamespace(restore=None, begin=begin, close=lambda: None)
    host: Any = SimpleNamespace(
        plan=lambda: Plan(stateful=False, keeps_state=False),
        beginning=lambda *_: beginning,
        snapshot=lambda *_: {},
        thread=lambda *_: None,
    )
    options = JobOptions.parse({"checkpointLocation": str(tmp_path / "job")}, "job")
    sinks = {"facts": OpenMemorySink(MemoryTarget(), JOB, "facts")}
    storage = _RepliesLost(tmp_path / "job")
    context = JobContext(JOB, storage, sinks, options, Observers(), ManualClock())
    with pytest.raises(InDoubtError):
        engine.Driver(host, context).take_over()
