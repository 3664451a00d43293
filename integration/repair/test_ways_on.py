"""States in which a job refuses to start and `twophase repair` leads out: the error names the
command, which is then run.

Real table, real files. The command is taken from the error itself.
`integration/repair/test_ways_by_hand.py` has the states that need something else;
`tests/test_ways_on_page.py` compares both with the table in docs/operations.md.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.repair.world import REASON, World
from twophase.errors import (
    CheckpointMissingError,
    CorruptRecordError,
    LostCommittableError,
    StopJobError,
    TargetChangedError,
)
from twophase.testing.services import MySqlService

pytestmark = pytest.mark.part("repair")

_COMMAND = re.compile(r"twophase repair [a-z-]+ JOB\.yaml(?: --[a-z-]+ \S+)*")


@dataclass(frozen=True)
class State:
    """A state in which the job refuses to start.

    Attributes:
        provoke: brings a new job into it.
        error: what a start raises.
        facts: the ids that the table has after one more checkpoint.
        lake: those that the folder of files has.
        before: what the operator does before the command, as the error says.
        options: what the command asks for beside what the error names.
    """

    provoke: Callable[[World], None]
    error: type[StopJobError]
    facts: list[int]
    lake: list[int]
    before: Callable[[World], object] = lambda world: None
    options: tuple[str, ...] = ()


def decided_then(meddle: Callable[[World], None]) -> Callable[[World], None]:
    """Checkpoint 0 is committed, 1 is decided; then somebody meddles."""

    def provoke(world: World) -> None:
        world.driver().recover().run(0)
        world.dies(1, "C11")
        world.freeze(1)
        meddle(world)

    return provoke


def folder_restored(world: World) -> None:
    """A backup of the job's folder from before checkpoint 1 is decided; Spark has planned it."""
    world.driver().recover().run(0)
    world.freeze(1)
    world.back_up_folder()
    world.driver().recover().run(1)
    world.restore_folder()


def driver_missed(world: World) -> None:
    """The same, from before a driver that has committed nothing."""
    world.driver().recover().run(0)
    world.freeze(1)
    world.back_up_folder()
    world.driver().recover()
    world.restore_folder()


def folder_gone(world: World) -> None:
    driver = world.driver().recover()
    driver.run(0)
    driver.run(1)
    shutil.rmtree(world.folder)


def log_damaged(world: World) -> None:
    driver = world.driver().recover()
    driver.run(0)
    driver.run(1)
    world.freeze(1)
    newest = max((world.folder / "log").iterdir())
    newest.write_bytes(newest.read_bytes()[:-3])


def newest_body_gone(world: World) -> None:
    driver = world.driver().recover()
    driver.run(0)
    driver.run(1)
    world.freeze(1)
    shutil.rmtree(world.body(1))


def damage_body(world: World) -> None:
    body = world.body(1) / "_metadata"
    body.write_bytes(body.read_bytes()[:-3])


def table_restored(world: World) -> None:
    world.driver().recover().run(0)
    world.back_up_table()
    driver = world.driver().recover()
    driver.run(1)
    world.restore_table()


def table_emptied_between_triggers(world: World) -> None:
    """The same under a running driver: the commit of checkpoint 2 finds it, and
    the next start again.
    """
    world.driver().recover().run(0)
    world.back_up_table()
    driver = world.driver().recover()
    driver.run(1)
    world.restore_table()
    with pytest.raises(TargetChangedError):
        driver.run(2)
    driver.sinks["facts"].abort(
        driver.sinks["facts"].in_doubt()
    )  # a server that was restored from a backup has no branches


ALL = list(range(20))
STATES = {
    "a decided piece was rolled back": State(
        decided_then(lambda world: world.roll_back(1, 1)), LostCommittableError, [*range(15)], ALL
    ),
    "all decided pieces were rolled back": State(
        decided_then(lambda world: world.roll_back(1, 0, 1)),
        LostCommittableError,
        [*range(10)],
        ALL,
    ),
    "staged files were deleted": State(
        decided_then(lambda world: world.remove_staged(1)), LostCommittableError, ALL, [*range(15)]
    ),
    "the target was restored from a backup": State(
        table_restored, TargetChangedError, [*range(10)], ALL
    ),
    "the folder was restored from a backup": State(
        folder_restored, CheckpointMissingError, ALL, ALL
    ),
    (
        "the folder was restored from a backup, and lacks nothing but a driver that a target has "
        "seen"
    ): State(driver_missed, CheckpointMissingError, ALL[:10], ALL[:10]),
    "the folder was restored from a backup in mid-commit": State(
        World.restore_folder_in_commit, CheckpointMissingError, ALL, ALL
    ),
    "the folder is gone": State(
        folder_gone,
        CheckpointMissingError,
        ALL,
        ALL,
        options=("--from-starting-offsets",),
        before=lambda world: world.write_job_file(startingOffsets='{"orders":{"0":20}}'),
    ),
    "the log is damaged": State(
        log_damaged,
        CorruptRecordError,
        ALL,
        ALL,
        before=lambda world: (world.folder / "log").rename(world.folder / "log.damaged"),
    ),
    "the body of a decided checkpoint is gone": State(
        decided_then(lambda world: shutil.rmtree(world.body(1))), CheckpointMissingError, ALL, ALL
    ),
    "the body of a decided checkpoint is damaged": State(
        decided_then(damage_body), CorruptRecordError, ALL, ALL
    ),
    "the body of the newest checkpoint is gone": State(
        newest_body_gone, CheckpointMissingError, ALL, ALL
    ),
}


@pytest.fixture
def world(tmp_path: Path, mysql: MySqlService) -> Iterator[World]:
    with ExitStack() as left:
        yield World(tmp_path, mysql, left)


@pytest.mark.parametrize("name", STATES)
def test_the_error_names_the_command_that_leads_out_of_it(world: World, name: str) -> None:
    state = STATES[name]
    state.provoke(world)
    with pytest.raises(state.error) as caught:
        world.start()
    (*_, command) = _COMMAND.findall(caught.value.remedy)
    state.before(world)
    words = [
        str(world.job_file) if word == "JOB.yaml" else word for word in shlex.split(command)[1:]
    ]
    result = world.run(*words, *state.options, "--yes", "--reason", REASON)
    assert result.exit_code == 0, result.output
    facts, lake = world.ids()
    assert (facts, lake) == (state.facts, state.lake)
    world.start_and_write(range(20, 30))
    assert world.ids() == ([*state.facts, *range(20, 30)], [*state.lake, *range(20, 30)])
    world.start()
    again = world.run(*words, *state.options, "--yes", "--reason", REASON)
    assert again.exit_code in (2, 3), "where the job goes on by itself, nothing is offered"
    assert world.ids() == ([*state.facts, *range(20, 30)], [*state.lake, *range(20, 30)])
