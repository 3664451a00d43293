"""What a start costs does not grow with the number of beginnings before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld
from harness.savepoint_world import restoring

pytestmark = pytest.mark.part("runtime")

FEW, MANY = 8, 32


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
@pytest.mark.xfail(strict=True, reason="issue: each lineage carries all of its ancestors")
def test_what_is_kept_of_a_job_does_not_grow_with_its_restores(tmp_path: Path, moves: bool) -> None:
    """My job is restored from its newest savepoint each night, for years: its log, its savepoints
    and what its targets remember of it keep their size.
    """
    few = Restored(tmp_path / "few", FEW, moves=moves)
    many = Restored(tmp_path / "many", MANY, moves=moves)
    assert many.log < 1.5 * few.log
    assert many.largest < 1.2 * few.largest
    assert _size(many.saved / "_savepoint") < 1.2 * _size(few.saved / "_savepoint")


def _size(path: Path) -> int:
    return path.stat().st_size
