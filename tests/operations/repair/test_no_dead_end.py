"""States out of which no single command leads, and which the model has found: what the errors name
is run, one command after the other, until the job goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from harness.memory_driver import (
    NOTE,
    Driver,
    completed_of,
    decided,
    dying,
    lose,
    restoring,
    visible,
)
from tests.coordinator.recovery.test_restored_target import backup, restore_target
from tests.operations.repair.test_accept_loss import Another, Targets
from tests.operations.repair.test_accept_loss import repair as accept_loss
from tests.operations.repair.test_adopt import repair as adopt
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import (
    CheckpointMissingError,
    LostCommittableError,
    TargetChangedError,
    TwoPhaseError,
)
from twophase.operations.repair.abandon_rewind import RewindRepair
from twophase.options.job_options import SinkAhead
from twophase.testing.memory import MemoryTarget

MOST_REPAIRS = 6
CHECKPOINTS = 2

Command = Callable[[], object]


class World:
    """A job in memory, and every command that an operator has.

    Args:
        folder: the job's.
        targets: by sink.
    """

    def __init__(self, folder: Path, targets: Targets) -> None:
        self.folder = folder
        self.targets = targets
        self.restores: list[Command] = []

    def goes_on(self) -> Driver:
        """Run commands until the job goes on; fail with their errors if none of them does it."""
        for _ in range(MOST_REPAIRS):
            errors = list[str]()
            for start in (self.start, *self.restores):
                if _succeeds(start, errors):
                    return Driver(self.folder, self.targets).recover()
            repairs = (*self._losses(), self._adopt, self._abandon)
            if not any(_succeeds(repair, errors) for repair in repairs):
                break
        return pytest.fail("\n".join(errors))

    def start(self) -> None:
        Driver(self.folder, self.targets).recover()

    def restore(self, restore: Restore) -> None:
        driver = Driver(self.folder, self.targets)
        driver.coordinator.recover(None, restore)
        driver.coordinator.begin_lineage(restore.lineage)

    def may_restore(self, number: int) -> None:
        """From here on a checkpoint that is kept now may be restored."""
        kept = restoring(completed_of(self.folder, number), committed=True)
        for policy in (SinkAhead.REFUSE, SinkAhead.REWIND):
            self.restores.append(partial(self.restore, replace(kept, sink_ahead=policy)))

    def _losses(self) -> list[Command]:
        def accept(checkpoint: int, sink: str) -> Command:
            repair = accept_loss(self.folder, self.targets)
            return lambda: repair.accept(repair.plan(checkpoint, sink), NOTE)

        return [accept(number, sink) for number in range(CHECKPOINTS) for sink in self.targets]

    def _adopt(self) -> None:
        repair = adopt(self.folder, self.targets)
        repair.adopt(repair.plan(), NOTE)

    def _abandon(self) -> None:
        repair = RewindRepair(Driver(self.folder, self.targets).coordinator.context, {})
        repair.abandon(repair.plan(), NOTE)


def _succeeds(command: Command, errors: list[str]) -> bool:
    try:
        command()
    except TwoPhaseError as error:
        errors.append(f"{type(error).__name__}: {error}")
        return False
    return True


@pytest.fixture
def world(folder: Path, targets: Targets) -> World:
    return World(folder, targets)


def copied(folder: Path) -> Command:
    """Copy the folder; return what restores the copy."""
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)

    def restore_copy() -> None:
        shutil.rmtree(folder)
        copy.rename(folder)

    return restore_copy


def test_a_folder_that_is_behind_beside_a_target_that_has_lost_its_rows(
    driver: Driver, world: World
) -> None:
    """The loss is accepted first, then the rest is adopted: each refused for the other's sake."""
    driver.run(0)
    world.may_restore(0)
    restore_copy = copied(world.folder)
    driver.run(1)
    restore_copy()
    restore_target(world.targets["lake"], MemoryTarget())
    with pytest.raises(CheckpointMissingError):
        Driver(world.folder, world.targets).recover()
    world.goes_on()
    assert visible(world.targets["facts"]) == [*range(20)]


def test_a_folder_that_is_behind_and_has_a_lost_piece_to_commit(
    driver: Driver, another: Another, world: World
) -> None:
    driver.run(0)
    decided(driver, 1)
    restore_copy = copied(world.folder)
    lose(world.targets["lake"], 1, 0, 1)
    with pytest.raises(LostCommittableError):
        another().recover()
    repair = accept_loss(world.folder, world.targets)
    repair.accept(repair.plan(1, "lake"), NOTE)
    another().recover().run(2)
    restore_copy()
    world.goes_on()
    assert visible(world.targets["facts"]) == [*range(30)]
    assert visible(world.targets["lake"]) == [*range(10), *range(20, 30)]


@pytest.mark.parametrize("adopts", [True, False], ids=["adopts", "accepts the loss"])
def test_a_folder_that_has_only_missed_a_driver_goes_on_by_adoption_alone(
    driver: Driver, another: Another, world: World, adopts: bool
) -> None:
    """A repair of something else takes the job over: then the folder would pass for the newest."""
    driver.run(0)
    restore_copy = copied(world.folder)
    another().recover()
    restore_copy()
    if not adopts:
        restore_target(world.targets["lake"], MemoryTarget())
        with pytest.raises(TwoPhaseError, match="has seen generation 2"):
            accept_loss(world.folder, world.targets).plan(0, "lake")
    else:
        world.goes_on()


def test_a_failover_to_an_older_copy_of_a_target(driver: Driver, world: World) -> None:
    """It knows the job, so it is no new target; and it is not the one that the log names."""
    driver.run(0)
    old = backup(world.targets["facts"])
    driver.run(1)
    world.may_restore(1)
    world.targets = {**world.targets, "facts": old}
    with pytest.raises(TargetChangedError):
        Driver(world.folder, world.targets).recover()
    world.goes_on().run(2)
    assert visible(world.targets["facts"]) == [*range(10), *range(20, 30)]
    assert visible(world.targets["lake"]) == [*range(30)]


def test_the_loss_of_all_rows_is_not_accepted_for_a_target_that_is_new(
    driver: Driver, world: World
) -> None:
    """It has lost nothing: the job begins there, with `restore.path`."""
    driver.run(0)
    now = {**world.targets, "facts": MemoryTarget()}
    with pytest.raises(TwoPhaseError, match=r"begin there with restore\.path"):
        accept_loss(world.folder, now).plan(0, "facts")


def test_a_folder_that_has_missed_a_driver_beside_a_target_that_has_lost_its_rows(
    driver: Driver, another: Another, world: World
) -> None:
    driver.run(0)
    world.may_restore(0)
    restore_copy = copied(world.folder)
    another().recover()
    restore_copy()
    restore_target(world.targets["lake"], MemoryTarget())
    world.goes_on().run(1)
    assert visible(world.targets["facts"]) == [*range(20)]
    assert visible(world.targets["lake"]) == [*range(10, 20)]


def test_a_failover_to_an_older_copy_with_a_checkpoint_that_waits(
    driver: Driver, world: World
) -> None:
    driver.run(0)
    old = backup(world.targets["facts"])
    decided(driver, 1)
    world.targets = {**world.targets, "facts": old}
    with pytest.raises(TargetChangedError) as caught:
        Driver(world.folder, world.targets).recover()
    assert "accept-loss JOB.yaml --checkpoint 1 --sink facts" in caught.value.remedy
    world.goes_on().run(2)
    assert visible(world.targets["facts"]) == [*range(10), *range(20, 30)]
    assert visible(world.targets["lake"]) == [*range(30)]


def test_half_a_rewind_beside_a_target_that_has_lost_its_rows(driver: Driver, world: World) -> None:
    driver.run(0)
    world.may_restore(0)
    driver.run(1)
    dying("S11", world.restores[1])
    restore_target(world.targets["lake"], MemoryTarget())
    world.goes_on()


def test_half_a_rewind_whose_savepoint_is_gone(driver: Driver, world: World) -> None:
    driver.run(0)
    world.may_restore(0)
    driver.run(1)
    dying("S12", world.restores.pop())
    world.restores.clear()
    world.goes_on()
