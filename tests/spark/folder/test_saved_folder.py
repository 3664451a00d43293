"""Spark's folder of a lineage, as a savepoint takes it and as a restore writes it. No Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.savepoint_world import World, killed
from twophase.errors import CheckpointMissingError, OffsetMismatchError, SavepointError


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_savepoint_of_a_folder_that_lacks_a_file_is_refused_and_a_start_says_what_is_wrong(
    world: World,
) -> None:
    world.drive(2)
    lost = world.spark() / "offsets" / "1"
    kept = lost.rename(world.root / "kept")
    with pytest.raises(SavepointError, match=r"lacks offsets/1 of checkpoint 1") as caught:
        world.make()
    assert caught.value.remedy == "start the job: its error says what is wrong with the folder."
    with pytest.raises(OffsetMismatchError, match=r"Spark planned micro-batch 0 and finished 1"):
        world.drive(3)
    kept.rename(lost)
    world.make("saved again")
    world.drive(3)
    world.is_exact("job", 3)


def test_a_restored_folder_that_is_gone_before_its_first_checkpoint_is_restored_elsewhere(
    world: World,
) -> None:
    world.drive(2)
    saved = world.make()
    restoring = {"restore.path": str(saved)}
    assert killed("C01", lambda: world.drive(3, "restored", **restoring))
    shutil.rmtree(world.root / "restored" / "spark")
    for _ in range(2):
        with pytest.raises(CheckpointMissingError, match="was copied from savepoint") as caught:
            world.drive(3, "restored")
    assert caught.value.remedy == "restore the same savepoint into a new checkpointLocation."
    world.drive(3, "again", **restoring)
    world.is_exact("again", 3)
