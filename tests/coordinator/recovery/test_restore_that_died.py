"""A restore in a new folder that died before its lineage began, and a start that does not restore.

Found by the model, in the world *saved* with two crashes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.memory_driver import Driver, completed_of, decided, dying, restoring, visible
from twophase.errors import CheckpointMissingError
from twophase.testing.memory import MemoryTarget


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
