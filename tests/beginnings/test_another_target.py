"""A sink of the job has another target, which knows nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld, refused
from harness.savepoint_world import restoring

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
