"""A rewind takes rows back only where all of it can be done, and can be ended once it has begun."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.folder_host import FolderHost
from harness.folder_sink import OpenFolderSink
from harness.memory_driver import NOTE
from harness.plain_job import PlainJob
from harness.savepoint_world import killed, older, restoring
from twophase.contract.listener import InitializationContext, SnapshotContext
from twophase.contract.source import Source, SourceLeg
from twophase.errors import (
    CheckpointMissingError,
    OffsetOutOfRangeError,
    PreflightError,
    RestoreRefusedError,
    TwoPhaseError,
)
from twophase.operations.repair.abandon_rewind import AbandonPlan, RewindRepair
from twophase.spark.plan import operator_states

pytestmark = pytest.mark.part("runtime")


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


# -- what the source has lost ----------------------------------------------------------------------


class Expiring(Source):
    """The numbers of the world, of which those below one are gone.

    Args:
        first: the lowest number that can still be read.
    """

    def __init__(self, first: int) -> None:
        self.first = first

    def owns(self, line: str) -> bool:
        return False

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        if int(json.loads(line)["next"]) < self.first:
            raise OffsetOutOfRangeError(
                f"Numbers below {self.first} are gone.", remedy="bring them back."
            )
        return True


@pytest.fixture
def expired(monkeypatch: pytest.MonkeyPatch) -> Expiring:
    """Numbers below 30 can no longer be read; those of the savepoint in `older` begin at 20."""
    source = Expiring(30)
    monkeypatch.setattr(operator_states, "source_of", lambda _: source)
    return source


@pytest.mark.parametrize("folder", ["job", "again"])
def test_rows_that_the_source_has_lost_are_not_taken_back(
    world: BeginningWorld, expired: Expiring, folder: str
) -> None:
    """I rewind to a savepoint, and the source has not kept what came after it: it is refused. The
    job goes on without the rewind, or with it if the records come back.
    """
    path = older(world)
    with refused(world.root):
        world.drive(5, folder, **restoring(path, "rewind"))
    world.drive(5)
    world.is_exact("job", 5)
    expired.first = 0
    world.drive(6, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 6)


@pytest.mark.parametrize("folder", ["job", "again"])
def test_rows_that_the_source_loses_while_the_job_is_taken_over_are_not_taken_back(
    world: BeginningWorld, expired: Expiring, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source loses the records after it was asked, while an older driver is being fenced: it is
    asked once more before a row goes.
    """
    path = older(world)
    expired.first = 0
    fence = OpenFolderSink.fence

    def expires(sink: OpenFolderSink, attempt: object) -> None:
        fence(sink, attempt)  # type: ignore[arg-type]
        expired.first = 30

    monkeypatch.setattr(OpenFolderSink, "fence", expires)
    with pytest.raises(TwoPhaseError) as caught:
        world.drive(5, folder, **restoring(path, "rewind"))
    assert caught.value.remedy
    assert world.ids() == [[*range(40)]] * 2
    monkeypatch.setattr(OpenFolderSink, "fence", fence)
    expired.first = 0
    world.drive(5, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 5)


# -- what the program cannot read ------------------------------------------------------------------


class Listed:
    """A function with a list as its state."""

    def snapshot_state(self, context: SnapshotContext) -> dict[str, int] | None:
        return None

    def initialize_state(self, context: InitializationContext) -> None:
        context.operator_state_store.get_list_state("numbers")


class AsksInAnotherWay(Listed):
    """Asks for the same state in another way than the checkpoint has it."""

    def initialize_state(self, context: InitializationContext) -> None:
        context.operator_state_store.get_union_list_state("numbers")


class CannotRead(Listed):
    """Fails over its state, as a program with a mistake does."""

    def initialize_state(self, context: InitializationContext) -> None:
        raise ValueError("no such field")


@pytest.mark.parametrize("folder", ["job", "again"])
@pytest.mark.parametrize("function", [AsksInAnotherWay, CannotRead])
def test_no_row_is_taken_back_for_a_program_that_cannot_read_the_state(
    world: BeginningWorld, function: type[Listed], folder: str
) -> None:
    """I rewind with a new version of my program, which cannot read the state in the savepoint:
    nothing is taken back. With the old version it is rewound, or goes on.
    """
    world.functions = {"listed": Listed()}
    path = older(world)
    world.functions = {"listed": function()}
    with pytest.raises((TwoPhaseError, ValueError)):
        world.drive(5, folder, **restoring(path, "rewind"))
    assert world.ids() == [[*range(40)]] * 2
    world.functions = {"listed": Listed()}
    world.drive(5)
    world.is_exact("job", 5)
    world.drive(6, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 6)


@pytest.mark.parametrize("folder", ["job", "again"])
def test_no_row_is_taken_back_into_a_folder_that_cannot_hold_the_state(
    world: BeginningWorld, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I rewind, and the executors do not share the folder: nothing is taken back. Once they do, the
    same rewind is done.
    """

    def refuse() -> None:
        raise PreflightError("Not every executor shares that folder.", remedy="mount it.")

    path = older(world)
    monkeypatch.setattr(FolderHost, "check", staticmethod(refuse))
    with refused(world.root):
        world.drive(5, folder, **restoring(path, "rewind"))
    monkeypatch.undo()
    world.drive(5, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 5)


# -- what others are told --------------------------------------------------------------------------


def test_others_hear_that_the_job_goes_back_before_a_row_is_gone_and_again_when_all_are(
    world: BeginningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's group offsets are lowered so. Should the folder be lost in between, and the job begin
    where its group stands, rows come twice that would otherwise be left out.
    """
    path, heard = older(world), list[tuple[object, ...]]()

    def hear(checkpoint: int, lines: Sequence[str | None]) -> None:
        begun = world.history().rewinding is not None
        heard.append((checkpoint, *lines, begun, [len(ids) for ids in world.ids()]))

    monkeypatch.setattr(FolderHost, "rewound", staticmethod(hear))
    world.drive(5)
    assert not heard
    world.drive(6, **restoring(path, "rewind"))
    end = '{"next": 20}'
    assert heard == [(1, end, True, [50, 50]), (1, end, True, [20, 20])]


# -- one that has begun ----------------------------------------------------------------------------


class Refuses(OpenFolderSink):
    """Its rows were changed by somebody else between two starts, as by OPTIMIZE."""

    def check_rewind(self, keep: object) -> None:
        raise RestoreRefusedError("Version 7 has replaced files.", remedy="undo that.")


def give_up(world: BeginningWorld, folder: str) -> AbandonPlan:
    """Do what the error of a begun rewind names to give it up; return what was shown."""
    repairing = RewindRepair(world.context(folder), world.declared)
    plan = repairing.plan()
    repairing.abandon(plan, NOTE)
    return plan


@pytest.mark.parametrize("point", ["S11", "S12"])
def test_a_begun_rewind_that_a_sink_refuses_is_given_up(world: BeginningWorld, point: str) -> None:
    """A rewind died on its way, and by now a sink cannot take its rows back: I give the rewind up.
    The job goes on, keeps what the targets have, and writes nothing twice.
    """
    path = older(world)
    assert killed(point, lambda: world.drive(5, **restoring(path, "rewind")))
    world.kinds["lake"] = Refuses
    left = world.ids()
    for options in (restoring(path, "rewind"), {}):
        with refused(world.root) as caught:
            world.drive(5, **options)
        assert caught.type is RestoreRefusedError
        assert "twophase repair abandon-rewind JOB.yaml" in caught.value.remedy
    give_up(world, "job")
    world.drive(5)
    facts, lake = world.ids()
    assert lake == [*range(50)]
    assert len(facts) == len({*facts})
    assert {*left[0], *range(40, 50)} <= {*facts}


class CannotRewind(OpenFolderSink):
    """A sink of a kind that removes no committed rows."""

    check_rewind = rewind = None  # type: ignore[assignment]


FORK = "orders-fork"


def restore_the_newest(world: BeginningWorld, path: Path) -> None:
    world.drive(5, "again", **restoring(world.make("newest"), "rewind"))
    world.is_exact("again", 5)


def begin_another_job(world: BeginningWorld, path: Path) -> None:
    """It has targets of its own."""
    world.folders = {name: f"{name}-of-the-fork" for name in world.sinks}
    world.drive(5, "fork", FORK, **restoring(path, "fork"))
    assert world.ids() == [[*range(20, 50)]] * 2


@pytest.mark.parametrize("go_on", [restore_the_newest, begin_another_job])
def test_a_sink_that_cannot_take_rows_back_leaves_the_newest_checkpoint_or_another_job(
    world: BeginningWorld, go_on: Callable[[BeginningWorld, Path], None]
) -> None:
    """I rewind, and the rows of one sink cannot be removed: I do what the error says instead."""
    path = older(world)
    world.kinds["lake"] = CannotRewind
    with refused(world.root) as caught:
        world.drive(5, **restoring(path, "rewind"))
    assert caught.value.remedy.startswith("restore from the newest checkpoint; or begin another")
    go_on(world, path)


class DiesHalfway(OpenFolderSink):
    """It has taken back some rows when its driver is killed."""

    def rewind(self, keep: Mapping[str, int], attempt: object) -> None:
        self._folder.rewind_path(self._job, self._sink).write_text(json.dumps(dict(keep)))
        min((self._folder.root / "visible").glob("*-00000003-*")).unlink()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("folder", ["job", "again"])
def test_half_a_rewind_of_a_sink_is_finished_in_either_folder(
    world: BeginningWorld, folder: str
) -> None:
    """I rewound in a new folder, that died within a sink, and I start the job in its original
    folder: it does not go on without the rows that are gone. I finish the rewind there, or in the
    folder in which it has begun.
    """
    path = older(world)
    world.kinds["lake"] = DiesHalfway
    assert killed("", lambda: world.drive(5, "again", **restoring(path, "rewind")))
    world.kinds.clear()
    with refused(world.root) as caught:
        world.drive(5)
    assert "has taken back a part of the rows of sink 'lake'" in caught.value.what
    world.drive(5, folder, **restoring(path, "rewind"))
    world.is_exact(folder, 5)


@pytest.mark.parametrize("point", ["S11", "S12"])
def test_a_begun_rewind_whose_records_are_gone_by_now_takes_back_no_more(
    world: BeginningWorld, expired: Expiring, point: str
) -> None:
    """A rewind died on its way, and by the next start the source has lost what it needs: rows that
    are still in a target stay there. I give the rewind up, and the job goes on.
    """
    path = older(world)
    expired.first = 0
    assert killed(point, lambda: world.drive(5, **restoring(path, "rewind")))
    expired.first = 30
    left = world.ids()
    with refused(world.root) as caught:
        world.drive(5, **restoring(path, "rewind"))
    assert caught.type is OffsetOutOfRangeError
    assert "finish it: bring them back. Or give it up" in caught.value.remedy
    assert "twophase repair abandon-rewind JOB.yaml" in caught.value.remedy
    give_up(world, "job")
    world.drive(5)
    assert world.ids() == [[*ids, *range(40, 50)] for ids in left]


@pytest.mark.parametrize("point", ["C18", "C22", "S11", "S12", "S13", "S06", "S07", "C01", "C06"])
def test_a_rewind_that_died_in_a_new_folder_is_rewound_in_the_original_one(
    world: BeginningWorld, point: str
) -> None:
    """I rewound in a new folder, that died, and I go back to the original folder with the same
    rewind: it is done there. The new folder does not go on beside it.
    """
    path = older(world)
    assert killed(point, lambda: world.drive(5, "again", **restoring(path, "rewind")))
    world.drive(5, **restoring(path, "rewind"))
    world.is_exact("job", 5)
    for options in ({}, restoring(path, "refuse")):
        with pytest.raises(TwoPhaseError):
            world.drive(6, "again", **options)
    assert world.ids() == [[*range(50)]] * 2
    world.drive(6)
    world.is_exact("job", 6)


@pytest.mark.parametrize("point", ["C18", "C22"])
def test_a_rewind_that_died_in_a_new_folder_before_it_was_recorded_changes_nothing(
    world: BeginningWorld, point: str
) -> None:
    """The same, and the sinks did not hear of it: the original folder goes on as it was."""
    path = older(world)
    assert killed(point, lambda: world.drive(5, "again", **restoring(path, "rewind")))
    world.drive(5)
    world.is_exact("job", 5)


@pytest.mark.parametrize("point", ["S11", "S12", "S13", "S07", "C01", "C06"])
def test_the_original_folder_names_a_way_on_beside_a_rewind_elsewhere(
    world: BeginningWorld, point: str
) -> None:
    """A rewind died in a new folder, and I start the job in its original folder again: it names the
    way on, which is to do the rewind there.
    """
    path = older(world)
    assert killed(point, lambda: world.drive(5, "again", **restoring(path, "rewind")))
    with refused(world.root) as caught:
        world.drive(5)
    assert isinstance(caught.value, RestoreRefusedError | CheckpointMissingError)
    assert "restore.sink_ahead=rewind" in caught.value.remedy
    world.drive(5, **restoring(path, "rewind"))
    world.is_exact("job", 5)


@pytest.mark.parametrize("point", ["C22", "S11", "S12", "S13", "S07", "C01", "C06"])
def test_a_rewind_to_a_checkpoint_that_died_in_a_new_folder_is_done_in_the_original_one(
    world: BeginningWorld, point: str
) -> None:
    """The same with the path of a checkpoint of the original folder."""
    kept: dict[str, Any] = {"checkpoint.num_retained": 9}
    PlainJob(world, 4, options=kept).run()
    [path] = (world.root / "job" / "chk").glob("*-1-*")
    given = {**kept, **restoring(path, "rewind")}
    assert killed(point, PlainJob(world, 5, "again", given).run)
    PlainJob(world, 5, options=given).run()
    assert world.ids() == [[*range(50)]] * 2
    PlainJob(world, 6, options=given).run()
    assert world.ids() == [[*range(60)]] * 2
