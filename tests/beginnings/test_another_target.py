"""A sink of the job has another target, which knows nothing of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.folder_sink import FolderTarget, OpenFolderSink
from harness.memory_driver import JOB, NOTE, dying
from harness.savepoint_world import restoring
from twophase.contract.sink import SinkHistory
from twophase.errors import TargetChangedError
from twophase.operations.repair.accept_loss import LossRepair

pytestmark = pytest.mark.part("runtime")


def test_a_new_target_has_lost_nothing_that_could_be_accepted(tmp_path: Path) -> None:
    """A copy of the old one has its bookkeeping; what is named instead begins there."""
    world = BeginningWorld(tmp_path)
    world.sinks = ("facts",)
    world.drive(2)
    saved = world.make()
    world.folders["facts"] = "elsewhere"
    with refused(tmp_path) as caught:
        world.drive(3)
    assert "begin there with restore.path" in caught.value.remedy
    assert "accept-loss" not in caught.value.remedy
    world.drive(3, **restoring(saved, "refuse"))
    assert world.ids() == [[*range(20, 30)]]


class Recreated(OpenFolderSink):
    """Its table was dropped and created again; the record of its commits is that of before."""

    def target(self) -> str:
        return f"{super().target()}#2"

    def history(self) -> SinkHistory:
        return replace(super().history(), replaced="it was dropped and created again")


def move(world: BeginningWorld) -> None:
    world.folders["facts"] = "elsewhere"


def recreate(world: BeginningWorld) -> None:
    target, lineage = FolderTarget(world.target("facts")), world.history().lineage
    assert lineage is not None
    newest = max(one.checkpoint for one in world.history().decisions if one.committed)
    target.raise_high_water(JOB, "facts", lineage.id, newest)
    for file in (*target.root.glob("visible/*"), *target.root.glob("prepared/*")):
        file.unlink()
    world.kinds["facts"] = Recreated


_ACCEPT = re.compile(
    r"twophase repair accept-loss JOB\.yaml --checkpoint (\d+) --sink (\w+)"
    r"(?: --restore (\S+))?(?: --sink-ahead (\w+))?$"
)


def accept_as_told(world: BeginningWorld, remedy: str, folder: str) -> None:
    """Run the command that a message names, to the letter."""
    found = _ACCEPT.search(remedy)
    assert found is not None, remedy
    checkpoint, sink, path, policy = found.groups()
    given: Mapping[str, Any] = restoring(Path(path), policy or "refuse") if path else {}
    repair = LossRepair(world.context(folder, **given), world.declared)
    repair.accept(repair.plan(int(checkpoint), sink), NOTE)


@pytest.mark.parametrize("lose", [move, recreate])
@pytest.mark.parametrize(
    ("savepoint", "policy", "folder", "begins"),
    [
        ("newest", "refuse", "job", 30),
        ("newest", "refuse", "new", 30),
        ("newest", "rewind", "job", 30),
        ("older", "rewind", "job", 20),
    ],
)
def test_what_waits_in_a_target_that_is_gone_is_given_up_by_who_begins_in_another(
    tmp_path: Path,
    lose: Callable[[BeginningWorld], None],
    savepoint: str,
    policy: str,
    folder: str,
    begins: int,
) -> None:
    """A server is gone for good while a checkpoint waits for it. I begin in another one, as the
    error says, and give up what waited there, as the next one says.
    """
    world = BeginningWorld(tmp_path)
    world.drive(2)
    saved = {"older": world.make("older")}
    dying("C11", lambda: world.drive(3))
    world.note(world.spark() / "commits" / "2", 'v1\n{"nextBatchWatermarkMs":0}')
    saved["newest"] = world.make("newest")
    lose(world)
    with pytest.raises(TargetChangedError, match=r"begin there with restore\.path"):
        world.drive(3)
    restore = restoring(saved[savepoint], policy)
    with pytest.raises(TargetChangedError, match="taken its place for good") as caught:
        world.drive(4, folder, **restore)
    accept_as_told(world, caught.value.remedy, folder)
    world.drive(4, folder, **restore)
    assert world.ids() == [[*range(begins, 40)], [*range(40)]]
    assert world.prepared() == 0


def test_what_waits_in_the_first_target_of_a_job_is_given_up(tmp_path: Path) -> None:
    """Nothing has been committed there yet: the job goes on without a restore."""
    world = BeginningWorld(tmp_path)
    dying("C11", lambda: world.drive(1))
    move(world)
    with pytest.raises(TargetChangedError, match="taken its place for good") as caught:
        world.drive(2)
    accept_as_told(world, caught.value.remedy, "job")
    world.drive(2)
    assert world.ids() == [[*range(10, 20)], [*range(20)]]
