"""The job or one of its sinks has another name than its targets and its folder know."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.memory_driver import NOTE
from harness.plain_job import PlainJob
from harness.savepoint_world import restoring
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    StopJobError,
    TargetChangedError,
)
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.state.checkpoints.checkpoint import FrozenOffsets

pytestmark = pytest.mark.part("runtime")

MAY_RENAME: dict[str, Any] = {"restore.allow_non_restored_state": True}


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


def test_a_job_with_another_name_is_told_so_and_goes_on_under_its_own(
    world: BeginningWorld,
) -> None:
    """I gave the job another name over the same folder: it says which name the folder has.
    Under that name it goes on.
    """
    world.drive(2)
    with refused(world.root) as caught:
        world.drive(4, job="sales")
    assert isinstance(caught.value, ConfigError)
    assert "'orders'" in caught.value.remedy, "the old name is the way on"
    assert "adopt" not in caught.value.remedy
    world.drive(4)
    world.is_exact("job", 4)


def test_a_renamed_sink_whose_target_was_restored_says_what_is_missing_under_its_own_name(
    world: BeginningWorld,
) -> None:
    """I renamed a sink when its target had been restored from a backup: the job went on, and the
    rows since the backup were in no target.
    """
    world.drive(2)
    world.copy("facts", "backup")
    world.drive(4)
    world.copy("facts", "newest")
    world.copy("backup", "facts")
    world.rename("facts", "sales")
    with refused(world.root) as caught:
        world.drive(6, **MAY_RENAME)
    assert "lacks the rows of its checkpoint 3" in caught.value.what
    assert "name the sink 'facts' again" in caught.value.remedy
    world.rename("sales", "facts")
    with pytest.raises(TargetChangedError, match="Checkpoints from 2 to 3 are missing in it"):
        world.drive(6, **MAY_RENAME)
    world.copy("newest", "facts")
    world.rename("facts", "sales")
    world.drive(6, **MAY_RENAME)
    world.is_exact("job", 6)


def _begin_without_the_log(world: BeginningWorld) -> None:
    PlainJob(world, 4, name="sales").run()


def _adopt_without_the_log(world: BeginningWorld) -> None:
    def frozen(_: str, __: int) -> FrozenOffsets | None:
        return None

    repair = AdoptionRepair(world.context(job="sales"), frozen, lambda _: True)
    repair.adopt(repair.plan(), NOTE)
    PlainJob(world, 4, name="sales").run()


@pytest.mark.parametrize("go_on", [_begin_without_the_log, _adopt_without_the_log])
def test_a_renamed_job_whose_log_was_moved_away_does_not_write_its_rows_again(
    world: BeginningWorld, go_on: Callable[[BeginningWorld], None]
) -> None:
    """I gave the job another name and moved its log away: it does not begin afresh over rows that
    it has written under the old name. With the old log and name it goes on.
    """
    PlainJob(world, 2).run()
    shutil.move(world.root / "job" / "log", world.root / "log")
    with pytest.raises(CheckpointMissingError) as caught:
        go_on(world)
    assert "'orders'" in caught.value.remedy
    assert world.ids() == [[*range(20)]] * 2
    shutil.rmtree(world.root / "job" / "log", ignore_errors=True)
    shutil.move(world.root / "log", world.root / "job" / "log")
    PlainJob(world, 4).run()
    assert world.ids() == [[*range(40)]] * 2


@pytest.mark.parametrize("folder", ["job", "again"])
@pytest.mark.parametrize("name", ["pond", "lake"])
def test_a_rewind_takes_back_what_a_sink_has_written_under_each_of_its_names(
    world: BeginningWorld, name: str, folder: str
) -> None:
    """I renamed a sink some checkpoints after a savepoint, and rewind to that: what the sink wrote
    under either name is taken back, whichever it has now.
    """
    world.drive(2)
    path = world.make()
    world.drive(3)
    world.rename("lake", "pond")
    world.drive(5, **MAY_RENAME)
    assert world.ids() == [[*range(50)]] * 2
    if name == "lake":
        world.rename("pond", "lake")
    world.drive(6, folder, **restoring(path, "rewind"), **MAY_RENAME)
    world.is_exact(folder, 6)


def pre_commit_again(world: BeginningWorld, name: str, checkpoint: int) -> None:
    """A second attempt of a task whose first one is committed pre-commits its rows."""
    target = world.target(name)
    committed = min((target / "visible").glob(f"*~{name}~*-{checkpoint:08d}-*"))
    piece = json.loads(committed.read_text())
    piece["committable"]["subtask"]["task_attempt"] = 900
    again = target / "prepared" / f"{committed.stem.rpartition('.')[0]}.900.json"
    again.write_text(json.dumps(piece))


def test_a_rewind_keeps_what_is_in_doubt_under_another_name(world: BeginningWorld) -> None:
    """I rename a sink, and rewind to a checkpoint of which a piece is in doubt under its old name:
    nothing is taken back. Under that name the job clears it up, as it says, and then rewinds.
    """
    world.drive(2)
    path = world.make()
    world.drive(3)
    pre_commit_again(world, "lake", 1)
    world.rename("lake", "pond")
    world.drive(5, **MAY_RENAME)
    with pytest.raises(StopJobError, match=r"'lake' has pieces of checkpoint 1 .* in doubt"):
        world.drive(6, **restoring(path, "rewind"), **MAY_RENAME)
    assert world.ids() == [[*range(50)]] * 2
    world.rename("pond", "lake")
    world.drive(6, **MAY_RENAME)
    world.is_exact("job", 6)
    world.drive(7, **restoring(path, "rewind"), **MAY_RENAME)
    world.is_exact("job", 7)


def test_a_restore_in_a_new_folder_sees_what_a_renamed_sink_has_written(
    world: BeginningWorld,
) -> None:
    """I restore an older savepoint in a new folder, and its sink has another name there: the rows
    that are newer are seen. With a rewind the job goes on.
    """
    world.sinks = ("lake",)
    world.drive(2)
    path = world.make()
    world.drive(4)
    world.rename("lake", "pond")
    with refused(world.root):
        world.drive(5, "again", **restoring(path, "refuse"), **MAY_RENAME)
    world.drive(5, "again", **restoring(path, "rewind"), **MAY_RENAME)
    world.is_exact("again", 5)
