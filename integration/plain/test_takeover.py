"""Pieces touched by hand after the decision, folders deleted and put back: the job goes on, or says why it does not."""

from __future__ import annotations

import shutil

import pytest

from harness.branches import branches
from harness.nemesis import Ended
from integration.plain import scenario
from integration.plain.conftest import MakeArena
from integration.plain.jobs import BATCH, TARGETS, Arena
from integration.plain.targets import SqlTarget
from twophase.errors import CheckpointMissingError, LostPreparedError, TwoPhaseError
from twophase.testing.services import SqlService

pytestmark = pytest.mark.part("plain")


@pytest.fixture(params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest, servers: dict[str, SqlService]) -> tuple[str, SqlService]:
    return request.param, servers[request.param]


def decided_uncommitted(arena: Arena, server: SqlService) -> str:
    """Bring the job to a decided checkpoint, all pieces of which are prepared; returns a branch of the job."""
    before = {*branches(server)}
    scenario.die_in_checkpoint(arena, "C11", 1)
    return min({*branches(server)} - before)


def refused(arena: Arena, error: type[TwoPhaseError]) -> Ended:
    """The next driver ends with this error, and nothing of it becomes visible."""
    visible = [pieces.visible for pieces in arena.state().targets]
    ended = arena.run()
    assert ended.code == error.exit_code, ended.output
    assert f"{error.__name__}: " in ended.output
    assert [pieces.visible for pieces in arena.state().targets] == visible
    return ended


def test_a_branch_rolled_back_by_hand_is_named_with_its_rows(
    make_arena: MakeArena, server: tuple[str, SqlService]
) -> None:
    arena = make_arena(TARGETS[server[0]])
    branch = decided_uncommitted(arena, server[1])
    by_hand(arena, f"XA ROLLBACK {branch}")
    ended = arena.run()
    assert ended.code == LostPreparedError.exit_code, ended.output
    assert "LostPreparedError: " in ended.output
    assert "checkpoint 1 is decided, but 1 of its pieces" in ended.output
    assert f"{scenario.PIECE} rows are lost" in ended.output


def test_a_branch_committed_by_hand_is_recognised(make_arena: MakeArena, server: tuple[str, SqlService]) -> None:
    arena = make_arena(TARGETS[server[0]])
    branch = decided_uncommitted(arena, server[1])
    by_hand(arena, f"XA COMMIT {branch}")
    arena.goes_on()


def by_hand(arena: Arena, statement: str) -> None:
    """As an administrator would."""
    [target] = arena.targets.values()
    assert isinstance(target, SqlTarget)
    target.sql(statement)


@pytest.mark.parametrize("target", TARGETS)
def test_a_deleted_folder_is_noticed_before_anything_is_written(make_arena: MakeArena, target: str) -> None:
    arena = make_arena(TARGETS[target])
    arena.produce(1)
    arena.finish()
    shutil.rmtree(arena.location)
    arena.produce(1)
    refused(arena, CheckpointMissingError)


@pytest.mark.parametrize("target", TARGETS)
def test_an_old_copy_of_the_folder_is_noticed_before_anything_is_written(make_arena: MakeArena, target: str) -> None:
    arena = make_arena(TARGETS[target])
    arena.produce(1)
    arena.finish()
    shutil.copytree(arena.location, arena.scratch / "old")
    arena.produce(1)
    arena.finish()
    shutil.rmtree(arena.location)
    (arena.scratch / "old").rename(arena.location)
    refused(arena, CheckpointMissingError)
    assert [pieces.visible for pieces in arena.state().targets] == [2 * BATCH for _ in arena.targets]
