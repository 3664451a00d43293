"""A restore from after what a restored target lacks, once an operator has accepted that loss."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from harness.memory_driver import JOB, NOTE, Driver, completed_of, decided, restoring, visible
from tests.coordinator.recovery.test_restored_target import backup, restore_target, run_all
from tests.operations.repair.test_accept_loss import Targets, repair
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import LostCommittableError, TargetChangedError
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.savepoint.restore import load_restore
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.testing.memory import MemoryTarget


@pytest.mark.parametrize("had", [0, 2], ids=["nothing", "the first two"])
def test_a_restore_continues_after_an_accepted_gap_of_several_checkpoints(
    driver: Driver, targets: Targets, folder: Path, had: int
) -> None:
    """The body of the newest names the one before it as what the target must prove, and the
    target lacks that too.
    """
    run_all(driver, 0, had)
    old = backup(targets["facts"])
    run_all(driver, had, 5)
    restore_target(targets["facts"], old)
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(4, "facts"), NOTE)
    restore = restoring(completed_of(folder, 4), committed=True)
    # Why a restore: the other sink begins in another target.
    moved = {"facts": targets["facts"], "lake": MemoryTarget()}
    restored = Driver(folder, moved)
    restored.coordinator.recover(restore=restore)
    restored.coordinator.begin_lineage(restore.lineage)
    restored.run(1)
    Driver(folder, moved).recover()
    assert visible(moved["facts"]) == sorted([*range(10 * had), *range(10, 20)]), (
        "the same offsets, of another lineage"
    )
    assert visible(moved["lake"]) == list(range(10, 20))


@pytest.mark.parametrize(
    "had", [0, 1, 2], ids=["nothing", "the first", "all of the lineage before"]
)
def test_a_restore_continues_after_a_gap_that_reaches_into_the_lineage_before(
    driver: Driver, targets: Targets, folder: Path, had: int
) -> None:
    images = [backup(targets["facts"])]
    for number in range(2):
        driver.run(number)
        images.append(backup(targets["facts"]))
    first = driver.coordinator.lineage.id
    continue_from(driver, Driver(folder, targets)).run(1)
    restore_target(targets["facts"], images[had])
    repairing = repair(folder, targets)
    plan = repairing.plan(1, "facts")
    older = [
        f"are missing in it, as are checkpoints {span} of the older lineage {first}. "
        for span in ("up to 1", "from 1 to 1")
    ]
    assert [span in plan.gap for span in older] == [had == 0, had == 1]
    repairing.accept(plan, NOTE)
    last = continue_from(Driver(folder, targets).recover(), Driver(folder, targets))
    last.run(1)
    assert visible(targets["facts"]) == sorted([*range(10 * had), *range(10, 20)]), (
        "the same offsets, of a third lineage"
    )
    if had:
        restore_target(targets["facts"], images[0])
        with pytest.raises(TargetChangedError):
            Driver(folder, targets).recover()


@pytest.mark.parametrize("had", [0, 1, 2], ids=["nothing", "the first", "the first two"])
def test_a_gap_reaches_into_lineages_of_another_folder(
    driver: Driver, targets: Targets, folder: Path, had: int
) -> None:
    """The log names them as what its own lineage continues, and nothing else of them: what is
    called lost has to begin where the target ends, and not where the job began.
    """
    images = [backup(targets["facts"])]
    driver.run(0)
    first = driver.coordinator.lineage.id
    images.append(backup(targets["facts"]))
    driver = continue_from(driver, Driver(folder, targets))
    driver.run(1)
    images.append(backup(targets["facts"]))
    elsewhere = folder.with_name("elsewhere")
    last = continue_from(driver, Driver(elsewhere, targets))
    last.run(1, lambda pending: last.write_rows(pending, 20))
    restore_target(targets["facts"], images[had])
    repairing = repair(elsewhere, targets)
    plan = repairing.plan(1, "facts")
    older = [(driver.coordinator.lineage.id, 1), (first, 0)]
    assert [(one.lineage, one.checkpoint) for one in plan.lacks[1:]] == older[: 2 - had]
    assert ("from where the job began" in plan.gap) == (had == 0)
    repairing.accept(plan, NOTE)
    Driver(elsewhere, targets).recover().run(2)
    assert visible(targets["facts"]) == [*range(10 * had), *range(20, 30)]
    if had:
        restore_target(targets["facts"], images[0])
        with pytest.raises(TargetChangedError):
            Driver(elsewhere, targets).recover()


@pytest.mark.parametrize("held_back", [False, True], ids=["its pieces too", "its pieces wait"])
def test_a_gap_is_not_taken_for_the_checkpoint_of_its_number_that_is_restored(
    driver: Driver, targets: Targets, folder: Path, tmp_path: Path, *, held_back: bool
) -> None:
    """A lineage goes on with the next number of the one that it continues from: what the target
    lacks is 1 of the older one, and what is restored 1 of its own.
    """
    empty, moved = backup(targets["facts"]), tmp_path / "moved"
    run_all(driver, 0, 2)
    decided(continue_from(driver, Driver(moved, targets)), 1)
    restore_target(targets["facts"], empty)
    if not held_back:
        targets["facts"].prepared.clear()
    [path] = (moved / "chk").glob("*-1-*")
    settings = {"restore.path": str(path), "restore.allow_non_restored_state": True}
    options = JobOptions.parse({"checkpointLocation": str(moved), **settings}, "job")

    def start() -> Driver:
        restored = Driver(moved, targets, settings)
        storage = LocalStorage(moved)
        restore = load_restore(JOB, str(path), storage, OperatorStates([], {}), options)
        restored.coordinator.recover(restore=restore)
        restored.coordinator.begin_lineage(restore.lineage)
        return restored

    for loss in (TargetChangedError, *([] if held_back else [LostCommittableError])):
        with pytest.raises(loss, match="checkpoint 1 ") as caught:
            start()
        assert "accept-loss JOB.yaml --checkpoint 1 --sink facts" in caught.value.remedy
        repairing = LossRepair(Driver(moved, targets, settings).coordinator.context)
        plan = repairing.plan(1, "facts")
        with suppress(LostCommittableError):  # which comes next
            repairing.accept(plan, NOTE)
    start().run(1)
    assert visible(targets["lake"]) == sorted([*range(20), *range(10, 20), *range(10, 20)])
    assert visible(targets["facts"]) == sorted([*range(10, 20)] * (1 + held_back))


def continue_from(driver: Driver, restored: Driver) -> Driver:
    """A restore from the newest checkpoint of a driver, in the same folder."""
    newest, begun = driver.coordinator.newest(), driver.coordinator.context.log.history.lineage
    assert newest is not None
    assert begun is not None
    restore = restoring(driver.coordinator.context.store.read(newest), committed=True)
    lineage = replace(restore.lineage, ancestors={**begun.ancestors, **restore.lineage.ancestors})
    restored.coordinator.recover(restore=replace(restore, lineage=lineage))
    restored.coordinator.begin_lineage(lineage)
    return restored


def held(driver: Driver, target: MemoryTarget, number: int) -> MemoryTarget:
    """Runs a checkpoint; returns the target as a backup has it that was made when the
    checkpoint was prepared.
    """
    image = MemoryTarget()

    def backed_up(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        restore_target(image, target)
        image.prepared = dict(target.prepared)

    driver.run(number, backed_up)
    return image


@pytest.mark.parametrize("restores", [1, 2], ids=["one restore", "two restores"])
def test_what_was_given_up_of_a_lineage_before_does_not_return_with_the_branches_of_the_backup(
    targets: Targets, folder: Path, restores: int
) -> None:
    """The backup has prepared pieces of a lineage that the lost checkpoint continues; they may have
    been written by hand since.
    """
    kept = {"checkpoint.num_retained": 9}
    driver = Driver(folder, targets, options=kept).recover()
    if restores > 1:
        driver.run(0)
        driver = continue_from(driver, Driver(folder, targets, options=kept))
        driver.run(1)
    image = held(driver, targets["facts"], 2 if restores > 1 else 0)
    had = [0] if restores > 1 else []
    if restores > 1:  # of the lineage before only what came before its checkpoint 1 is left
        image.visible = [row for row in image.visible if row["id"] < 10]
        image.ledger = {key for key in image.ledger if key[2] != driver.coordinator.lineage.id}
    last = continue_from(driver, Driver(folder, targets, options=kept))
    last.run(1)
    restore_target(targets["facts"], image)
    targets["facts"].prepared = dict(image.prepared)
    repairing = repair(folder, targets)
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    Driver(folder, targets, options=kept).recover().run(2)
    rows = [10 * number + step for number in [*had, 2] for step in range(10)]
    assert (visible(targets["facts"]), targets["facts"].prepared) == (rows, {})
