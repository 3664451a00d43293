"""A job that keeps state is restored, and the state of a function has no place in it any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.plain_job import PlainJob
from harness.savepoint_world import restoring
from tests.beginnings.functions import Counted
from twophase.errors import ConfigError

pytestmark = pytest.mark.part("runtime")

MAY_DROP: dict[str, Any] = {"restore.allow_non_restored_state": True}


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    """Two micro-batches with a function, which the program does not have any more."""
    world = BeginningWorld(tmp_path)
    world.functions = {"counted": Counted()}
    world.drive(2)
    world.make()
    world.functions = {}
    return world


def test_a_savepoint_gives_back_the_keyed_state_without_the_function(
    world: BeginningWorld,
) -> None:
    """I removed a function and allowed its state to be dropped: the keyed state of the query is
    restored all the same.
    """
    path = world.root / "saved"
    with refused(world.root):
        world.drive(4, "again", **restoring(path, "refuse"))
    world.drive(4, "again", **restoring(path, "refuse"), **MAY_DROP)
    world.is_exact("again", 4)


@pytest.mark.parametrize("folder", ["job", "again"])
def test_a_checkpoint_without_the_keyed_state_is_refused_though_a_function_may_be_dropped(
    world: BeginningWorld, folder: str
) -> None:
    """The same with the path of a checkpoint, which has no keyed state: that was not meant to be
    dropped, and it is refused. In its own folder the job goes on with it.
    """
    [checkpoint] = (world.root / "job" / "chk").iterdir()
    with refused(world.root):
        world.drive(4, folder, **restoring(checkpoint, "refuse"), **MAY_DROP)
    world.drive(4, **MAY_DROP)
    world.is_exact("job", 4)


@pytest.mark.parametrize("drops", [False, True])
def test_a_savepoint_with_keyed_state_is_not_restored_with_a_plan_that_has_none(
    tmp_path: Path, drops: bool
) -> None:
    """My plan keeps no state any more, and I restored a savepoint of the old one: it is refused.
    With the old plan it is restored, and with the new one once its state may be dropped.
    """
    world = BeginningWorld(tmp_path)
    world.drive(2)
    given = restoring(world.make(), "refuse")
    with refused(world.root) as caught:
        PlainJob(world, 4, "again", given).run()
    assert caught.type is ConfigError
    assert "set `restore.allow_non_restored_state=true`" in caught.value.remedy
    if drops:
        PlainJob(world, 4, "again", {**given, **MAY_DROP}).run()
        assert world.ids() == [[*range(40)]] * 2
    else:
        world.drive(4, "again", **given)
        world.is_exact("again", 4)


def test_a_savepoint_without_keyed_state_is_restored_with_the_plan_that_it_was_made_of(
    tmp_path: Path,
) -> None:
    """I restored it with a plan that keeps state: it is refused. With the old plan it goes on."""
    world = BeginningWorld(tmp_path)
    PlainJob(world, 2).run()
    given = restoring(world.make(), "refuse")
    with refused(world.root) as caught:
        world.drive(4, "again", **given)
    assert caught.value.remedy == "restore it with the plan that it was made of."
    PlainJob(world, 4, "again", given).run()
    assert world.ids() == [[*range(40)]] * 2
