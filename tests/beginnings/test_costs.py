"""What a start costs does not grow with the number of beginnings before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld
from harness.savepoint_world import restoring

pytestmark = pytest.mark.part("runtime")

FEW, MANY = 8, 32
BYTES = 1000
"""Of a restore in each record that names all of them: its lineage, with its proofs."""
RECORDS = 4
"""Records that may wait for the next fold, each of which names all lineages."""


class Restored:
    """What there is after so many restores, each of the newest savepoint."""

    def __init__(self, root: Path, restores: int, *, moves: bool) -> None:
        self.world = world = BeginningWorld(root)
        world.sinks = ("facts",)
        folder = "job"
        world.drive(1)
        for number in range(restores):
            path = world.make(f"saved-{number}", folder)
            folder = f"job-{number}" if moves else folder
            world.drive(number + 2, folder, **restoring(path, "refuse"))
        self.saved = world.make("last", folder)
        records = [*map(_size, (root / folder / "log").iterdir())]
        self.log, self.largest = sum(records), max(records)


@pytest.mark.parametrize("moves", [False, True], ids=["one folder", "a new folder each"])
def test_a_restore_adds_the_same_whatever_was_restored_before(tmp_path: Path, moves: bool) -> None:
    """My job is restored from its newest savepoint each night, for years: a line in the log for
    each restore, and no more.
    """
    few = Restored(tmp_path / "few", FEW, moves=moves)
    many = Restored(tmp_path / "many", MANY, moves=moves)
    more = MANY - FEW
    assert (many.largest - few.largest) / more < BYTES
    assert (_size(many.saved / "_savepoint") - _size(few.saved / "_savepoint")) / more < BYTES
    assert many.log - few.log < RECORDS * BYTES * more


def _size(path: Path) -> int:
    return path.stat().st_size
