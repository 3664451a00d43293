"""A target restored from a backup taken before a rewind has rows again that the job has written
otherwise since: they are taken back once more, and not adopted beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    completed_of,
    decided,
    lose,
    visible,
)
from tests.coordinator.recovery.test_restored_target import backup, restore_target
from tests.coordinator.recovery.test_rewind import KEPT, rewind, to
from tests.operations.repair.test_accept_loss import Targets
from tests.operations.repair.test_accept_loss import repair as accept_loss
from tests.operations.repair.test_adopt import repair as adoption
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import CheckpointMissingError, LostCommittableError, TargetChangedError
from twophase.ids import Attempt
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget

Another = Callable[..., Driver]


@pytest.fixture
def old(targets: Targets, another: Another, folder: Path) -> MemoryTarget:
    """The lake as it was with checkpoints 0 to 2, which the job has gone back behind to 0 since."""
    first = another(options=KEPT).recover()
    for number in range(3):
        first.run(number)
    found = backup(targets["lake"])
    rewind(another(options=KEPT), to(folder, 0))
    return found


def back_to(folder: Path, number: int) -> Restore:
    """A rewind to a checkpoint, as `load_restore` has it."""
    restore, history = to(folder, number), JobLog(LocalStorage(folder), JOB).read()
    [begun] = [one for one in history.lineages if one.id == restore.checkpoint.lineage]
    waiting = restore.checkpoint if history.uncommitted() else None
    ancestors = {**begun.ancestors, **restore.lineage.ancestors}
    return replace(
        restore,
        lineage=replace(restore.lineage, ancestors=ancestors),
        adopting=(waiting,) if waiting else (),
    )


def refused(driver: Driver) -> TargetChangedError:
    with pytest.raises(TargetChangedError, match=r"has checkpoint 2 of lineage .* again, and the "
                       "job has gone back to 0 of it since") as caught:  # fmt: skip
        driver.recover()
    return caught.value


def test_they_are_taken_back_once_more_and_what_the_target_lacks_is_a_loss(
    old: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    another(options=KEPT).recover().run(1)
    restore_target(targets["lake"], old)
    newest = completed_of(folder, 1)
    error = refused(another(options=KEPT))
    assert f"`restore.path={folder}/chk/{newest.lineage}-1-{newest.attempt}`" in error.remedy
    with pytest.raises(TargetChangedError, match="again, and the job has gone back"):
        adoption(folder, targets).plan()
    with pytest.raises(TargetChangedError, match=r"accept-loss JOB\.yaml"):
        rewind(another(options=KEPT), back_to(folder, 1))
    accepting = accept_loss(folder, targets)
    accepting.accept(accepting.plan(1, "lake"), NOTE)
    refused(another(options=KEPT))
    last = another(options=KEPT)
    rewind(last, back_to(folder, 1))
    last.run(1, lambda pending: last.write_rows(pending, 20))
    assert visible(targets["facts"]) == [*range(30)]
    assert visible(targets["lake"]) == [*range(10), *range(20, 30)]


def test_they_are_taken_back_after_the_loss_of_pieces_that_were_not_committed_yet(
    old: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    decided(another(options=KEPT).recover(), 1)
    lose(targets["lake"], 1, 0, 1)
    restore_target(targets["lake"], old)
    refused(another(options=KEPT))
    with pytest.raises(LostCommittableError):
        rewind(another(options=KEPT), back_to(folder, 1))
    accepting = accept_loss(folder, targets)
    accepting.accept(accepting.plan(1, "lake"), NOTE)
    rewind(another(options=KEPT), back_to(folder, 1))
    assert visible(targets["facts"]) == [*range(20)]
    assert visible(targets["lake"]) == [*range(10)]


def test_a_lineage_without_a_checkpoint_begins_once_more(
    old: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    restore_target(targets["lake"], old)
    error = refused(another(options=KEPT))
    again = back_to(folder, 0)
    assert f"`restore.path={again.lineage.restored_from}`" in error.remedy
    assert "takes a new `restore.id`" in error.remedy
    last = another(options=KEPT)
    rewind(last, replace(again, lineage=replace(again.lineage, restore_id="again")))
    last.run(1)
    assert visible(targets["facts"]) == visible(targets["lake"]) == [*range(20)]


def test_a_checkpoint_that_the_target_has_all_of_gives_up_nothing(
    old: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    again = back_to(folder, 0)
    another(options=KEPT).recover().run(1)
    restore_target(targets["lake"], old)
    refused(another(options=KEPT))
    last = another(options=KEPT)
    rewind(last, replace(again, lineage=replace(again.lineage, restore_id="again")))
    for number in (1, 2):
        last.run(number)
    assert visible(targets["facts"]) == visible(targets["lake"]) == [*range(30)]


def test_what_another_folder_has_written_since_is_adopted(
    old: MemoryTarget, targets: Targets, another: Another, folder: Path
) -> None:
    """Its driver has left a fence that this folder does not know."""
    restore_target(targets["lake"], old)
    targets["lake"].fences = dict.fromkeys(old.fences, Attempt(9, 0))
    with pytest.raises(CheckpointMissingError, match="this job continues from 0"):
        another(options=KEPT).recover()
    assert adoption(folder, targets).plan().ancestors
