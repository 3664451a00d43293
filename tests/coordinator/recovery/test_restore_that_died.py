"""A restore in a new folder that died before its lineage began, and a start that does not restore.

Found by the model, in the world *saved* with two crashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from harness.memory_driver import JOB, Driver, completed_of, decided, dying, restoring, visible
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import CheckpointMissingError
from twophase.testing.memory import MemoryTarget, OpenMemorySink


@pytest.mark.parametrize("point", ["", "C18"], ids=["before its fence", "after its fence"])
def test_i6_a_start_does_not_abort_what_a_restore_had_still_to_commit(
    driver: Driver, targets: dict[str, MemoryTarget], folder: Path, tmp_path: Path, point: str
) -> None:
    """No target has proof of the job yet: only their fences tell of it, until the restore has
    appended one of its own. The same restore, tried again, commits the decided checkpoint.
    """
    decided(driver, 0)
    new = tmp_path / "new"
    restore = restoring(completed_of(folder, 0), committed=False)
    if point:
        dying(point, lambda: Driver(new, targets).coordinator.recover(None, restore))
    with pytest.raises(CheckpointMissingError):
        Driver(new, targets).recover()
    again = Driver(new, targets)
    again.coordinator.recover(None, restore)
    again.coordinator.begin_lineage(restore.lineage)
    assert [visible(target) for target in targets.values()] == [[*range(10)]] * 2


class Waits(OpenMemorySink):
    """One piece of the first checkpoint cannot be committed yet, and the operator stops the job."""

    stopping: Event

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        found = list[CommitOutcome]()
        for one in requests:
            piece = one.committable
            if (piece.transaction.checkpoint, piece.subtask.index) == (0, 1):
                self.stopping.set()
                found.append(RetryLater("a session still holds it"))
            else:
                found += super().commit([one])
        return found


def test_a_restore_that_is_stopped_commits_nothing_after_what_waits(
    tmp_path: Path, targets: dict[str, MemoryTarget]
) -> None:
    """I4: a later checkpoint that is committed says that nothing before it is left."""
    first = Driver(tmp_path / "job", targets).recover()
    decided(first, 0)
    waiting = {name: dict(target.prepared) for name, target in targets.items()}
    decided(Driver(tmp_path / "job", targets).recover(), 1)
    for name, target in targets.items():  # as if both had waited, as with max_concurrent=2
        target.visible.clear()
        target.ledger.clear()
        target.prepared = waiting[name] | target.prepared
    older, newer = (completed_of(tmp_path / "job", number) for number in (0, 1))
    restore = replace(restoring(newer, committed=False), adopting=(older, newer))
    sinks = {name: Waits(target, JOB, name) for name, target in targets.items()}
    moved = Driver(tmp_path / "moved", targets, sinks=dict(sinks))
    for sink in sinks.values():
        sink.stopping = moved.context.stopping
    moved.coordinator.recover(restore=restore)
    assert visible(targets["facts"]) == list(range(5))
    assert {key[3] for target in targets.values() for key in target.prepared} == {0, 1}
    assert {key[3] for target in targets.values() for key in target.ledger} == {0}
