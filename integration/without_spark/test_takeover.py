"""Pieces touched by hand after the decision, folders deleted and restored: the job goes on, or
says why it does not.
"""

from __future__ import annotations

import shutil

import pytest

from harness.branches import branches
from harness.nemesis import Ended
from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.scenario import BATCH, TARGETS, Scenario
from integration.without_spark.targets import SqlTarget
from twophase.errors import CheckpointMissingError, LostCommittableError, TwoPhaseError
from twophase.testing.services import SqlService

pytestmark = pytest.mark.part("without_spark")


@pytest.fixture(params=["mysql", "mariadb"])
def server(
    request: pytest.FixtureRequest, servers: dict[str, SqlService]
) -> tuple[str, SqlService]:
    return request.param, servers[request.param]


def decided_uncommitted(scenario: Scenario, server: SqlService) -> str:
    """Bring the job to a decided checkpoint, all pieces of which are prepared; returns a
    branch of the job.
    """
    before = {*branches(server)}
    steps.die_in_checkpoint(scenario, "C11", 1)
    return min({*branches(server)} - before)


def refused(scenario: Scenario, error: type[TwoPhaseError]) -> Ended:
    """The next driver ends with this error, and nothing of it becomes visible."""
    visible = [pieces.visible for pieces in scenario.state().targets]
    ended = scenario.run()
    assert ended.code == error.exit_code, ended.output
    assert f"{error.__name__}: " in ended.output
    assert [pieces.visible for pieces in scenario.state().targets] == visible
    return ended


def test_a_branch_rolled_back_by_hand_is_named_with_its_rows(
    make_scenario: MakeScenario, server: tuple[str, SqlService]
) -> None:
    scenario = make_scenario(TARGETS[server[0]])
    branch = decided_uncommitted(scenario, server[1])
    by_hand(scenario, f"XA ROLLBACK {branch}")
    ended = scenario.run()
    assert ended.code == LostCommittableError.exit_code, ended.output
    assert "LostCommittableError: " in ended.output
    assert "checkpoint 1 is decided, but 1 of its pieces" in ended.output
    assert f"{steps.PIECE} rows are lost" in ended.output


def test_a_branch_committed_by_hand_is_recognised(
    make_scenario: MakeScenario, server: tuple[str, SqlService]
) -> None:
    scenario = make_scenario(TARGETS[server[0]])
    branch = decided_uncommitted(scenario, server[1])
    by_hand(scenario, f"XA COMMIT {branch}")
    scenario.goes_on()


def by_hand(scenario: Scenario, statement: str) -> None:
    """As an administrator would."""
    [target] = scenario.targets.values()
    assert isinstance(target, SqlTarget)
    target.sql(statement)


@pytest.mark.parametrize("target", TARGETS)
def test_a_deleted_folder_is_noticed_before_anything_is_written(
    make_scenario: MakeScenario, target: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    scenario.produce(1)
    scenario.finish()
    shutil.rmtree(scenario.location)
    scenario.produce(1)
    refused(scenario, CheckpointMissingError)


@pytest.mark.parametrize("target", TARGETS)
def test_an_old_copy_of_the_folder_is_noticed_before_anything_is_written(
    make_scenario: MakeScenario, target: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    scenario.produce(1)
    scenario.finish()
    shutil.copytree(scenario.location, scenario.scratch / "old")
    scenario.produce(1)
    scenario.finish()
    shutil.rmtree(scenario.location)
    (scenario.scratch / "old").rename(scenario.location)
    refused(scenario, CheckpointMissingError)
    assert [pieces.visible for pieces in scenario.state().targets] == [
        2 * BATCH for _ in scenario.targets
    ]
