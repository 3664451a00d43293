"""A savepoint is restored, and a target is an older copy of the one that it was made with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.memory_driver import NOTE
from harness.savepoint_world import restoring
from twophase.operations.repair.accept_loss import LossRepair

pytestmark = pytest.mark.part("runtime")


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    """Two micro-batches, a copy of each target, two more; a savepoint of both moments."""
    world = BeginningWorld(tmp_path)
    world.drive(2)
    world.make("night")
    for name in world.sinks:
        world.copy(name, f"{name}-night")
    world.drive(4)
    world.make("day")
    return world


def move(world: BeginningWorld, *names: str) -> None:
    """The job writes to last night's copy of these targets from now on."""
    world.folders |= {name: f"{name}-night" for name in names}


@pytest.mark.parametrize("policy", ["refuse", "rewind"])
@pytest.mark.parametrize("moved", [["facts"], ["facts", "lake"]], ids=["one", "both"])
def test_a_copy_that_lacks_rows_of_the_savepoint_is_noticed(
    world: BeginningWorld, moved: list[str], policy: str
) -> None:
    """I restored the newest savepoint with last night's copy of the database on another server:
    the job sees that rows are missing there. With a newer copy it goes on.
    """
    move(world, *moved)
    with refused(world.root):
        world.drive(5, "again", **restoring(world.root / "day", policy))
    for name in moved:
        world.copy(name, f"{name}-night")
    world.drive(5, "again", **restoring(world.root / "day", policy))
    world.is_exact("again", 5)


@pytest.mark.parametrize("policy", ["refuse", "rewind"])
def test_what_a_target_lacks_of_an_older_savepoint_is_given_up_in_the_job_first(
    world: BeginningWorld, policy: str
) -> None:
    """I restored last night's savepoint, and a target had lost all its rows: the loss is that of
    the job, up to its newest checkpoint. When that is accepted, the savepoint is restored.
    """
    shutil.rmtree(world.root / "facts")
    older = restoring(world.root / "night", policy)
    with refused(world.root) as caught:
        world.drive(5, **older)
    assert "without restore.path" in caught.value.remedy
    with refused(world.root) as caught:
        world.drive(5)
    assert "accept-loss JOB.yaml --checkpoint 3 --sink facts" in caught.value.remedy
    repair = LossRepair(world.context())
    repair.accept(repair.plan(3, "facts"), NOTE)
    world.drive(5, **restoring(world.root / "night", "rewind"))
    assert world.ids() == [[*range(20, 50)], [*range(50)]]


def test_the_savepoint_of_that_moment_goes_on_with_the_copies(world: BeginningWorld) -> None:
    """I restored the savepoint that was made when the copies were: nothing is missing."""
    move(world, *world.sinks)
    world.drive(5, "again", **restoring(world.root / "night", "refuse"))
    world.is_exact("again", 5)


def test_a_target_that_knows_nothing_of_the_job_begins_with_the_savepoint(
    world: BeginningWorld,
) -> None:
    """I restored a savepoint with a new, empty table: it gets the rows from there on."""
    world.folders["facts"] = "facts-new"
    world.drive(5, "again", **restoring(world.root / "day", "refuse"))
    assert sorted(world.numbers("facts")) == [*range(40, 50)]
    assert sorted(world.numbers("lake")) == [*range(50)]
