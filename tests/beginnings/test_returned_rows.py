"""A job that keeps state goes on after a target has rows again that a rewind had taken back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.memory_driver import NOTE
from harness.savepoint_world import killed, restoring
from tests.beginnings.test_rewind import DiesHalfway
from twophase.errors import ConfigError, TargetChangedError
from twophase.operations.repair.accept_loss import LossRepair

pytestmark = pytest.mark.part("runtime")

TAKEN_BACK = "again, and the job has gone back"


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    """A rewind to a savepoint of checkpoint 1, and a copy of a target of before it."""
    world = BeginningWorld(tmp_path)
    world.drive(2)
    world.make()
    world.drive(4)
    world.copy("lake", "backup")
    return world


def refusal(world: BeginningWorld, **options: Any) -> str:
    with refused(world.root) as caught:
        world.drive(5, **options)
    assert isinstance(caught.value, TargetChangedError | ConfigError)
    return str(caught.value)


def test_what_it_was_rewound_to_is_restored_once_more(world: BeginningWorld) -> None:
    again = restoring(world.root / "saved", "rewind")
    world.drive(2, **again)
    world.copy("backup", "lake")
    assert TAKEN_BACK in refusal(world)
    world.drive(5, **again, **{"restore.id": "again"})
    world.is_exact("job", 5)


def test_half_a_rewind_comes_back_with_a_backup_and_is_done_once_more(
    world: BeginningWorld,
) -> None:
    """Found by the simulation: the backup was made while the rewind was under way. It was called
    unfinished, and to finish it as I was told did nothing, since the job had begun with it.
    """
    again = restoring(world.root / "saved", "rewind")
    world.kinds["lake"] = DiesHalfway
    assert killed("", lambda: world.drive(5, **again))
    world.kinds.clear()
    world.copy("lake", "backup")
    world.drive(2, **again)
    world.copy("backup", "lake")
    assert TAKEN_BACK in refusal(world, **again)
    world.drive(5, **again, **{"restore.id": "again"})
    world.is_exact("job", 5)


def test_a_savepoint_of_the_job_as_it_is_now_leads_on(world: BeginningWorld) -> None:
    """The checkpoint that I am told to restore has no keyed state. A savepoint that I make of the
    stopped job has it; what the target has lost since is named, and given up.
    """
    world.drive(3, **restoring(world.root / "saved", "rewind"))
    world.copy("backup", "lake")
    error = refusal(world)
    [checkpoint] = re.findall(r'"restore\.path", "(.*?)"', error)
    assert "savepoint create JOB.yaml" in error
    error = refusal(world, **restoring(Path(checkpoint), "rewind"))
    assert "make a savepoint of the job that has written it, as it is now" in error
    now = restoring(world.make("now"), "rewind")
    error = refusal(world, **now)
    assert "accept-loss JOB.yaml --checkpoint 2 --sink lake" in error
    repair = LossRepair(world.context())
    repair.accept(repair.plan(2, "lake"), NOTE)
    assert TAKEN_BACK in refusal(world)
    world.drive(5, **now)
    assert world.ids() == [[*range(50)], [*range(20), *range(30, 50)]]
    assert world.state() == sum(range(50))
    assert world.prepared() == 0
