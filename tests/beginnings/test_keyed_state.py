"""A job that keeps state is restored, and the state of a function has no place in it any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.savepoint_world import restoring
from tests.beginnings.functions import Counted

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
