"""A rewind that has begun is given up: the job goes on from where it was, keeps what the targets
have, writes nothing twice, and the operator sees what is missing.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld
from harness.folder_sink import FolderTarget
from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    completed_of,
    dying,
    frozen,
    nothing,
    offsets,
    visible,
)
from harness.memory_driver import restoring as restoring_of
from harness.savepoint_world import killed, older, restoring
from twophase.contract.sink import ArrowSink
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    RestoreRefusedError,
    StopJobError,
    TargetChangedError,
    TwoPhaseError,
)
from twophase.operations.repair.abandon_rewind import AbandonPlan, RewindRepair, rewind_named
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.savepoint.fork import open_as
from twophase.options.job_options import SinkAhead
from twophase.sinks.file.sink import FileSink
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import AbandonedRewind, AcceptedLoss, FenceRecord
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget

ALL = [*range(50)]
TAKEN = [*range(20), *range(40, 50)]
"""What a sink has that was rewound to checkpoint 1, and has gone on after 3."""
STEPS = ["R01", "R06", "R06@2", "R02", "R03"]
AHEAD = {"checkpoint.mode": "at_least_once"}


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


def begun(world: BeginningWorld, point: str = "S12") -> Path:
    """Rewind to checkpoint 1 of 3, and die on the way; returns the savepoint."""
    path = older(world)
    assert killed(point, lambda: world.drive(5, **restoring(path, "rewind")))
    return path


def give_up(
    world: BeginningWorld,
    folder: str = "job",
    begun_in: str | None = None,
    *,
    named: Path | None = None,
    gone: bool = False,
) -> AbandonPlan:
    elsewhere = JobLog(LocalStorage(world.root / begun_in), JOB) if begun_in else None
    context = (
        world.context(folder, **restoring(named, "rewind")) if named else world.context(folder)
    )
    rewind = rewind_named(context) if named else None
    repairing = RewindRepair(context, world.declared, elsewhere, named=rewind, newest_is_gone=gone)
    plan = repairing.plan()
    repairing.abandon(plan, NOTE)
    return plan


@pytest.mark.parametrize("point", ["S11", "S12", "S12@2", "S13", "S06"])
def test_the_job_goes_on_with_what_each_sink_has_wherever_the_rewind_died(
    world: BeginningWorld, point: str
) -> None:
    begun(world, point)
    left = world.ids()
    plan = give_up(world)
    assert {*plan.whole} == {name for name, ids in zip(world.sinks, left, strict=True) if 39 in ids}
    for _ in range(2):
        world.drive(5)
        assert world.ids() == [[*ids, *range(40, 50)] for ids in left]
    assert world.state() == sum(ALL)
    assert world.prepared() == 0


def test_the_operator_sees_what_is_missing_where(world: BeginningWorld) -> None:
    path = begun(world)
    plan = give_up(world)
    [loss] = plan.losses
    assert plan.rewinding.restored_from == str(path)
    assert (loss.sink, loss.number, [one.checkpoint for one in loss.before]) == ("facts", 3, [1])
    assert loss.end == ('{"next": 40}',)
    assert "Checkpoints from 2 to 3 are missing" in loss.gap
    assert plan.whole == {"lake": ""}
    record = world.history().repairs[-1]
    assert isinstance(record, AbandonedRewind)
    assert (record.action, record.note, record.rewinding) == (
        "abandon-rewind",
        NOTE,
        plan.rewinding,
    )


@pytest.mark.parametrize("point", STEPS)
def test_it_may_die_anywhere_and_be_called_again(world: BeginningWorld, point: str) -> None:
    begun(world)
    assert killed(point, lambda: give_up(world))
    if point == "R03":
        with pytest.raises(StopJobError, match="no rewind has begun"):
            give_up(world)
    else:
        give_up(world)
    world.drive(5)
    assert world.ids() == [TAKEN, ALL]


@pytest.mark.parametrize("point", STEPS)
def test_a_rewind_whose_end_dies_can_still_be_finished(world: BeginningWorld, point: str) -> None:
    """Also when it was given up: then it is another rewind to the same savepoint."""
    path = begun(world)
    assert killed(point, lambda: give_up(world))
    world.drive(5, **restoring(path, "rewind"))
    world.is_exact("job", 5)


def test_rewound_again_the_job_writes_what_was_given_up(world: BeginningWorld) -> None:
    path = begun(world)
    give_up(world)
    world.drive(5)
    assert world.ids() == [TAKEN, ALL]
    world.drive(6, **restoring(path, "rewind"))
    world.is_exact("job", 6)


def test_a_loss_after_that_is_found_and_can_be_accepted(world: BeginningWorld) -> None:
    """The target is restored to when the rewind was given up; what went then is not asked for."""
    begun(world)
    give_up(world)
    world.copy("facts", "backup")
    world.drive(5)
    world.copy("backup", "facts")
    with pytest.raises(TargetChangedError, match="Checkpoints from 2 to 4 are missing"):
        world.drive(6)
    repairing = LossRepair(world.context())
    repairing.accept(repairing.plan(4, "facts"), NOTE)
    world.drive(6)
    assert world.ids() == [[*range(20), *range(50, 60)], [*range(60)]]


def test_a_rewind_into_the_lineage_before_is_given_up(world: BeginningWorld) -> None:
    """The sinks go back behind the beginning of the current lineage."""
    path = older(world)
    newest = world.make("newest")
    world.drive(5, **restoring(newest, "refuse"))
    assert killed("S12", lambda: world.drive(6, **restoring(path, "rewind")))
    [loss] = give_up(world).losses
    assert [one.checkpoint for one in loss.before] == [1]
    world.drive(6)
    assert world.ids() == [[*range(20), *range(50, 60)], [*range(60)]]


def test_a_driver_that_is_still_rewinding_takes_back_no_more(world: BeginningWorld) -> None:
    """The repair raises the fence of each sink before it looks."""
    begun(world, "S11")
    repairing = RewindRepair(world.context(), world.declared)
    plan = repairing.plan()
    assert not plan.losses
    generation = world.history().generation
    for name in world.sinks:
        assert world.context().sinks[name].history().generation == generation


def test_nothing_is_given_up_after_a_driver_has_taken_over(world: BeginningWorld) -> None:
    path = begun(world)
    repairing = RewindRepair(world.context(), world.declared)
    plan = repairing.plan()
    world.drive(5, **restoring(path, "rewind"))
    with pytest.raises(FencedError):
        repairing.abandon(plan, NOTE)
    world.is_exact("job", 5)


def test_without_a_rewind_there_is_nothing_to_give_up(world: BeginningWorld) -> None:
    world.drive(2)
    before = world.history()
    with pytest.raises(StopJobError, match="no rewind has begun") as caught:
        give_up(world)
    assert re.match("start the job", caught.value.remedy)
    assert world.history() == before
    world.drive(3)
    world.is_exact("job", 3)


def test_without_a_rewind_here_the_folder_is_named_in_which_one_has_begun(
    world: BeginningWorld,
) -> None:
    path = older(world)
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    with pytest.raises(StopJobError, match="no rewind has begun") as caught:
        give_up(world)
    assert "name that: --begun-in FOLDER" in caught.value.remedy
    give_up(world, begun_in="again")
    world.drive(5)
    assert world.ids() == [TAKEN, ALL]


@pytest.mark.parametrize("died", ["A01", "A02"])
@pytest.mark.parametrize(
    ("point", "again", "facts"),
    [("S11", [], ALL), ("S12", ["facts"], TAKEN), ("S13", ["facts"], TAKEN)],
)
def test_what_a_sink_has_ahead_of_the_others_is_written_once(
    world: BeginningWorld, point: str, again: list[str], facts: list[int], died: str
) -> None:
    """`facts` has committed checkpoint 4, which is not decided in `lake`. If the rewind has taken
    it back, it is written again; otherwise it is not.
    """
    path = older(world)
    assert killed(died, lambda: world.drive(5, **AHEAD))
    assert killed(point, lambda: world.drive(5, **AHEAD, **restoring(path, "rewind")))
    assert give_up(world).again == again
    world.drive(5, **AHEAD)
    assert world.ids() == [facts, TAKEN if point == "S13" else ALL]
    assert world.prepared() == 0


@pytest.mark.parametrize("point", ["S11", "S12", "S13", "S06"])
def test_a_rewind_that_has_begun_in_another_folder_is_given_up_for_the_original_one(
    world: BeginningWorld, point: str
) -> None:
    """The original folder and the new one name the way; what each sink has stays."""
    path = older(world)
    assert killed(point, lambda: world.drive(5, "again", **restoring(path, "rewind")))
    left = world.ids()
    with pytest.raises(CheckpointMissingError) as original:
        world.drive(5)
    with pytest.raises(StopJobError) as new:
        give_up(world, "again")
    for caught in (original, new):
        assert "twophase repair abandon-rewind JOB.yaml" in caught.value.remedy
        assert "--begun-in" in caught.value.remedy
    give_up(world, begun_in="again")
    world.drive(5)
    assert world.ids() == [[*ids, *range(40, 50)] for ids in left]
    world.drive(6)
    assert world.ids() == [[*ids, *range(40, 60)] for ids in left]
    with pytest.raises(TwoPhaseError):
        world.drive(6, "again")


@pytest.mark.parametrize("point", STEPS)
def test_giving_up_what_has_begun_elsewhere_may_die_anywhere(
    world: BeginningWorld, point: str
) -> None:
    path = older(world)
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    assert killed(point, lambda: give_up(world, begun_in="again"))
    give_up(world, begun_in="again")
    world.drive(5)
    assert world.ids() == [TAKEN, ALL]


def test_the_job_s_generation_is_above_those_of_the_folder_in_which_the_rewind_has_begun(
    world: BeginningWorld,
) -> None:
    """A driver there may raise a fence of a sink after the repair has asked the sinks."""
    path = older(world)
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    log = JobLog(LocalStorage(world.root / "again"), JOB)
    log.append(FenceRecord(log.read().generation + 5))
    give_up(world, begun_in="again")
    assert world.history("job").generation > world.history("again").generation
    world.drive(5)
    assert world.ids() == [TAKEN, ALL]


def test_a_folder_that_has_finished_its_rewind_goes_on(world: BeginningWorld) -> None:
    """It is not given up from the original folder: the job is in the other one."""
    path = older(world)
    world.drive(5, "again", **restoring(path, "rewind"))
    with pytest.raises(StopJobError, match="no rewind has begun"):
        give_up(world, begun_in="again")
    world.drive(6, "again")
    world.is_exact("again", 6)


def test_a_sink_that_is_ahead_of_both_folders_is_not_gone_on_from(world: BeginningWorld) -> None:
    """A third folder has taken the job over since: that one knows more."""
    path = older(world)
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    world.copy("again", "third")
    world.drive(5, "third", **restoring(path, "rewind"))
    with pytest.raises(CheckpointMissingError):
        give_up(world, begun_in="again")
    world.drive(6, "third")
    world.is_exact("third", 6)


@pytest.mark.parametrize("begun_in", ["job", "again"])
@pytest.mark.parametrize("point", ["S11", "S12"])
def test_a_folder_that_does_not_know_what_is_taken_back_gives_nothing_up_unasked(
    world: BeginningWorld, point: str, begun_in: str
) -> None:
    """It is an older copy; the newest folder may be there. The rewind can still be finished."""
    path = begun_over_a_copy(world, point, begun_in)
    left = world.ids()
    with pytest.raises(CheckpointMissingError, match=r"checkpoint 3 .* does not know") as caught:
        give_up(world, begun_in=begun_in if begun_in != "job" else None)
    assert f"finish the rewind: start with `restore.path={path}`" in caught.value.remedy
    assert "run this command with --newest-folder-gone" in caught.value.remedy
    assert world.ids() == left
    world.drive(5, begun_in, **restoring(path, "rewind"))
    world.is_exact(begun_in, 5)


def begun_over_a_copy(world: BeginningWorld, point: str, begun_in: str = "job") -> Path:
    """Rewind to checkpoint 1 of 3, over a copy of the folder that knows only that, and die."""
    world.drive(2)
    path = world.make()
    world.copy("job", "backup")
    world.drive(4)
    world.copy("backup", "job")
    assert killed(point, lambda: world.drive(5, begun_in, **restoring(path, "rewind")))
    return path


@pytest.mark.parametrize("begun_in", ["job", "again"])
@pytest.mark.parametrize(("point", "unknown"), [("S11", []), ("S12", ["facts"])])
def test_where_the_newest_folder_is_gone_the_rewind_is_given_up_for_an_older_one(
    world: BeginningWorld, point: str, unknown: list[str], begun_in: str
) -> None:
    """And the savepoint is gone as well. The next start asks for what the targets have."""
    shutil.rmtree(begun_over_a_copy(world, point, begun_in))
    left = world.ids()
    plan = give_up(world, begun_in=begun_in if begun_in != "job" else None, gone=True)
    assert (plan.unknown, plan.is_behind, plan.losses) == (unknown, True, [])
    assert world.ids() == left
    with pytest.raises(CheckpointMissingError, match="adopt-from-target"):
        world.drive(5)
    adoption = AdoptionRepair(world.context(), nothing).plan()
    assert [adoption.has_newest(name) for name in world.sinks] == [not unknown, True]


@pytest.mark.parametrize("begun_in", ["job", "again"])
def test_an_older_folder_that_knows_all_that_is_left_goes_on_by_itself(
    world: BeginningWorld, begun_in: str
) -> None:
    """The rewind has taken back all that the folder does not know."""
    begun_over_a_copy(world, "S13", begun_in)
    plan = give_up(world, begun_in=begun_in if begun_in != "job" else None)
    assert (plan.unknown, plan.is_behind, plan.losses) == ([], False, [])
    world.drive(3)
    world.is_exact("job", 3)


def test_half_a_rewind_is_settled_where_the_newest_folder_is_gone(tmp_path: Path) -> None:
    """It has begun in a folder of its own, and the one that the job ran in is gone: an adoption
    alone would not bring the files back that are moved aside.
    """
    world = FilesOfASink(tmp_path)
    path = older(world)
    assert killed("F07", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    shutil.rmtree(world.root / "job")
    with pytest.raises(StopJobError, match="nothing in it to go on from") as caught:
        give_up(world, "again")
    assert "run this command with --newest-folder-gone; then: twophase repair" in (
        caught.value.remedy
    )
    give_up(world, "again", gone=True)
    assert world.ids() == [[*range(40)]] * 2
    plan = AdoptionRepair(world.context("again"), nothing).plan()
    assert [*plan.ancestors.values()] == [3]


@pytest.mark.parametrize("begun_in", ["job", "again"])
def test_half_a_rewind_of_which_no_folder_tells_is_given_up_by_name(
    tmp_path: Path, begun_in: str
) -> None:
    """The folder in which it has begun was replaced by an older copy, or is gone. The sink tells
    that rows are missing, and I name the savepoint that the rewind goes back to.
    """
    world = FilesOfASink(tmp_path)
    path = older(world)
    world.copy("job", "backup")
    assert killed("F07", lambda: world.drive(5, begun_in, **restoring(path, "rewind")))
    shutil.rmtree(world.root / begun_in)
    world.copy("backup", "job")
    for repeated in range(2):
        with pytest.raises(
            RestoreRefusedError, match="a part of the rows of sink 'facts'"
        ) as start:
            world.drive(5)
        with pytest.raises(StopJobError, match="no rewind has begun") as caught:
            give_up(world)
        for error in (start, caught):
            assert "--restore PATH" in error.value.remedy
        if not repeated:
            with pytest.raises(StopJobError, match="it was not the one to") as caught:
                give_up(world, named=world.make("newest"))
            assert "--restore PATH" in caught.value.remedy
    plan = give_up(world, named=path)
    assert (plan.losses, plan.is_behind) == ([], False)
    world.drive(5)
    world.is_exact("job", 5)


def test_by_name_nothing_is_given_up_that_has_not_begun(tmp_path: Path) -> None:
    world = FilesOfASink(tmp_path)
    path = older(world)
    with pytest.raises(StopJobError, match="no rewind has begun"):
        give_up(world, named=path)
    world.drive(5)
    world.is_exact("job", 5)


def test_half_a_rewind_of_which_an_older_folder_knows_nothing_is_given_up_by_name(
    tmp_path: Path,
) -> None:
    """Neither that nor what has been committed since: after it the targets are adopted from."""
    world = FilesOfASink(tmp_path)
    path = begun_over_a_copy(world, "F07")
    world.copy("backup", "job")
    with pytest.raises(CheckpointMissingError, match="which the job's folder does not know"):
        give_up(world, named=path)
    give_up(world, named=path, gone=True)
    assert world.ids() == [[*range(40)]] * 2
    with pytest.raises(CheckpointMissingError, match="adopt-from-target"):
        world.drive(5)
    plan = AdoptionRepair(world.context(), nothing).plan()
    assert [*plan.ancestors.values()] == [3]


@pytest.mark.parametrize("begun_in", ["job", "again"])
def test_after_that_the_targets_are_adopted_from_and_the_job_goes_on(
    driver: Driver, targets: dict[str, MemoryTarget], folder: Path, begun_in: str
) -> None:
    """The rewind has reached `facts` only, and nothing of what is left is written twice."""
    driver.run(0)
    kept = restoring_of(completed_of(folder, 0), committed=True)
    shutil.copytree(folder, folder.with_name("backup"))
    driver.run(1)
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("backup"), folder)
    began = Driver(folder.with_name(begun_in) if begun_in != "job" else folder, targets)
    rewind = replace(kept, sink_ahead=SinkAhead.REWIND)
    dying("S12", lambda: began.coordinator.recover(None, rewind))
    context = Driver(folder, targets).coordinator.context
    elsewhere = None if begun_in == "job" else JobLog(LocalStorage(began.folder), JOB)
    repairing = RewindRepair(context, {}, elsewhere, newest_is_gone=True)
    repairing.abandon(repairing.plan(), NOTE)
    adopting = AdoptionRepair(Driver(folder, targets).coordinator.context, frozen)
    plan = adopting.plan()
    assert plan.end == offsets(1).end
    adopting.adopt(plan, NOTE)
    last = Driver(folder, targets).recover()
    last.run(1, lambda one: last.write_rows(one, 20))
    assert visible(targets["facts"]) == [*range(10), *range(20, 30)]
    assert visible(targets["lake"]) == [*range(30)]


def test_for_the_folder_in_its_newest_state_the_rewind_is_given_up(world: BeginningWorld) -> None:
    """An older copy was in its place when I tried to."""
    world.drive(2)
    path = world.make()
    world.copy("job", "backup")
    world.drive(4)
    world.copy("job", "newest")
    world.copy("backup", "job")
    assert killed("S12", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    with pytest.raises(CheckpointMissingError, match="does not know") as caught:
        give_up(world, begun_in="again")
    assert caught.value.remedy.startswith("restore the job's folder to its newest state")
    world.copy("newest", "job")
    give_up(world, begun_in="again")
    world.drive(5)
    assert world.ids() == [TAKEN, ALL]


def test_where_the_folder_that_the_job_ran_in_is_gone_the_targets_are_adopted_from(
    driver: Driver, targets: dict[str, MemoryTarget], folder: Path
) -> None:
    """The rewind has begun in a folder of its own, which has no checkpoint to go on from."""
    driver.run(0)
    kept = restoring_of(completed_of(folder, 0), committed=True)
    driver.run(1)
    new = Driver(folder.with_name("new"), targets)
    rewind = replace(kept, sink_ahead=SinkAhead.REWIND)
    dying("S12", lambda: new.coordinator.recover(None, rewind))
    shutil.rmtree(folder)
    with pytest.raises(StopJobError, match="nothing in it to go on from") as caught:
        RewindRepair(Driver(new.folder, targets).coordinator.context, {}).plan()
    assert "with --newest-folder-gone; then: twophase repair adopt-from-target" in (
        caught.value.remedy
    )
    context = Driver(new.folder, targets).coordinator.context
    repairing = RewindRepair(context, {}, newest_is_gone=True)
    given_up = repairing.plan()
    assert (given_up.is_behind, given_up.unknown) == (True, ["facts"])
    repairing.abandon(given_up, NOTE)
    adopting = AdoptionRepair(Driver(new.folder, targets).coordinator.context, nothing)
    plan = adopting.plan()
    assert plan.ancestors == {driver.coordinator.lineage.id: 1}
    adopting.adopt(plan, NOTE)
    Driver(new.folder, targets).recover().run(0, lambda one: new.write_rows(one, 20))
    assert visible(targets["facts"]) == [*range(10), *range(20, 30)]
    assert visible(targets["lake"]) == [*range(30)]


RENAMED: dict[str, Any] = {"restore.allow_non_restored_state": True}


def begun_after_a_rename(world: BeginningWorld, point: str) -> Path:
    """The same, and `lake` was named `pond` after checkpoint 2; both of its names are rewound."""
    world.drive(2)
    path = world.make()
    world.drive(3)
    world.rename("lake", "pond")
    world.drive(5, **RENAMED)
    assert killed(point, lambda: world.drive(6, **restoring(path, "rewind"), **RENAMED))
    return path


@pytest.mark.parametrize(
    ("point", "gone"),
    [
        ("S11", {}),
        ("S12", {"facts": 4}),
        ("S12@2", {"facts": 4, "pond": 4}),
        ("S12@3", {"facts": 4, "pond": 4, "lake": 2}),
        ("S13", {"facts": 4, "pond": 4, "lake": 2}),
    ],
)
def test_a_rewind_of_rows_under_another_name_is_given_up_and_their_loss_is_recorded(
    world: BeginningWorld, point: str, gone: dict[str, int]
) -> None:
    """The sink was renamed after the savepoint, so rows under either name are taken back."""
    path = begun_after_a_rename(world, point)
    left = world.ids()
    plan = give_up(world)
    assert {one.sink: one.number for one in plan.losses} == gone
    assert {*plan.whole} == {"facts", "pond", "lake"} - gone.keys()
    recorded = [one for one in world.history().repairs if isinstance(one, AcceptedLoss)]
    assert {one.sink: one.checkpoint for one in recorded} == gone
    world.drive(6, **RENAMED)
    assert world.ids() == [[*ids, *range(50, 60)] for ids in left]
    world.drive(7, **restoring(path, "rewind"), **RENAMED)
    world.is_exact("job", 7)


def test_a_driver_that_still_rewinds_under_another_name_takes_back_no_more(
    world: BeginningWorld,
) -> None:
    begun_after_a_rename(world, "S11")
    give_up(world)
    target = FolderTarget(world.target("pond"))
    generation = world.history().generation
    assert [target.fence(JOB, name).generation for name in ("pond", "lake")] == [generation] * 2


class FilesOfASink(BeginningWorld):
    """Its sinks are folders of files, two for each checkpoint."""

    def sink(self, name: str) -> ArrowSink:
        return FileSink(path=str(self.target(name)), format="json")

    def numbers(self, name: str) -> list[int]:
        paths = self.target(name).glob("*.json")
        return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]


def test_half_a_rewind_under_another_name_is_settled(tmp_path: Path) -> None:
    """Of `lake` it has moved one of two files aside, which comes back: nothing of it is lost."""
    world = FilesOfASink(tmp_path)
    begun_after_a_rename(world, "F07@9")
    assert [len(world.numbers(name)) for name in world.sinks] == [20, 25]
    with closing(open_as(world.declared, "pond", JOB, "lake")) as lake:
        assert lake.history().half_rewound
    plan = give_up(world)
    assert {one.sink for one in plan.losses} == {"facts", "pond"}
    world.drive(6, **RENAMED)
    assert world.ids() == [[*range(20), *range(50, 60)], [*range(30), *range(50, 60)]]


@pytest.mark.parametrize("point", ["S11", "S12", "S12@2", "S06"])
@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_without_the_newest_body_the_log_is_adopted_once_the_rewind_is_given_up(
    world: BeginningWorld, point: str, harm: str
) -> None:
    begun(world, point)
    left = world.ids()
    body = world.root / "job" / world.history().decisions[-1].folder / "_metadata"
    if harm == "gone":
        body.unlink()
    else:
        body.write_bytes(b"damaged")
    give_up(world)
    with pytest.raises(TwoPhaseError, match="adopt-from-target"):
        world.drive(5)
    adopting = AdoptionRepair(world.context(), lambda *_: None)
    adopting.adopt(adopting.plan(), NOTE)
    with pytest.raises(ConfigError, match="hold nothing of the state"):
        world.drive(5)
    assert world.ids() == left
