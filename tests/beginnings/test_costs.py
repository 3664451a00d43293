"""What a start costs does not grow with the number of beginnings before it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import ClassVar

import pytest

from harness.beginning_world import BeginningWorld
from harness.folder_sink import OpenFolderSink
from harness.savepoint_world import killed, restoring
from twophase.state.journal.entries import Lineage

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
        self.folder = folder
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


class Folding(OpenFolderSink):
    """Counts the requests to fold a lineage."""

    asked: ClassVar[list[str]] = []

    def subsume(self, lineage: str, checkpoint: int) -> None:
        self.asked.append(lineage)
        super().subsume(lineage, checkpoint)


@pytest.mark.parametrize("restores", [FEW, MANY])
@pytest.mark.parametrize("moves", [False, True], ids=["one folder", "a new folder each"])
def test_a_start_asks_the_same_of_a_sink_whatever_was_restored_before(
    tmp_path: Path, restores: int, moves: bool
) -> None:
    restored = Restored(tmp_path, restores, moves=moves)
    world, folder = restored.world, restored.folder
    world.drive(restores + 2, folder)  # the second checkpoint since the last restore
    world.kinds = {"facts": Folding}
    Folding.asked.clear()
    world.drive(restores + 3, folder)
    [*older, parent] = lineage(world, folder).ancestors
    assert len(older) == restores - 1
    assert Folding.asked == [parent]


class Dying(Folding):
    """Its driver dies before a lineage is folded."""

    at: ClassVar[str]

    def subsume(self, lineage: str, checkpoint: int) -> None:
        if lineage == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        super().subsume(lineage, checkpoint)


def test_a_start_folds_all_ancestors_until_a_driver_has_done_so(tmp_path: Path) -> None:
    world = BeginningWorld(tmp_path)
    world.sinks = ("facts",)
    world.drive(1)
    world.drive(2, **restoring(world.make("first"), "refuse"))
    restore = restoring(world.make("second"), "refuse")
    Dying.at = lineage(world).id
    world.kinds = {"facts": Dying}
    assert killed("", lambda: world.drive(3, **restore))  # committed, and that is on record
    assert killed("", lambda: world.drive(4))
    world.kinds = {"facts": Folding}
    Folding.asked.clear()
    world.drive(4)
    ancestors = [*lineage(world).ancestors]
    assert len(ancestors) == 2
    assert Folding.asked == ancestors
    world.is_exact("job", 4)


def lineage(world: BeginningWorld, folder: str = "job") -> Lineage:
    found = world.history(folder).lineage
    assert found is not None
    return found


def _size(path: Path) -> int:
    return path.stat().st_size
