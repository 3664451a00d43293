"""A dry run and a message say what is done, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.beginning_world import BeginningWorld, files
from harness.savepoint_world import older, restoring
from twophase.events import SinkRewound
from twophase.operations.savepoint.preview import preview_restore
from twophase.options.job_options import JobOptions

pytestmark = pytest.mark.part("runtime")


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


def test_a_dry_run_lists_no_rewind_that_the_start_does_not_do(world: BeginningWorld) -> None:
    """My job was rewound, `restore.path` stays set, and it has gone on: a dry run of the next start
    lists nothing to be taken back, as that start takes nothing back.
    """
    path = older(world)
    given = restoring(path, "rewind")
    world.drive(5, **given)
    before = files(world.root)
    context = world.context(**given)
    options = JobOptions.parse({"checkpointLocation": str(world.root / "job"), **given}, "job")
    found = preview_restore("orders", str(path), context.sinks, options)
    assert files(world.root) == before
    world.drive(6, **given)
    taken_back = [event.sink for event in world.events if isinstance(event, SinkRewound)]
    assert list(found.plan.takes_back) == taken_back == []
    world.is_exact("job", 6)
