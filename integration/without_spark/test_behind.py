"""Commits behind the next micro-batch, without Spark: SIGKILL with three checkpoints decided
(H48), and what follows.
"""

from __future__ import annotations

import pytest

from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.scenario import TARGETS

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

SAMPLED = [
    pytest.param(target, marks=[] if target == "files" else pytest.mark.proof) for target in TARGETS
]


@pytest.mark.parametrize("point", ["C11", "C12", "C13", "C14", "C15", "C16"])
@pytest.mark.parametrize("target", SAMPLED)
def test_h48_all_is_killed_with_several_decided_while_a_commit_is_at(
    make_scenario: MakeScenario, target: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target], **steps.BEHIND)
    steps.die_in_commit_behind(scenario, point)
    scenario.goes_on()


@pytest.mark.parametrize("committed", [1, 2])
@pytest.mark.parametrize("target", SAMPLED)
def test_h48_recovery_is_killed_when_it_has_committed_the_oldest(
    make_scenario: MakeScenario, target: str, committed: int
) -> None:
    scenario = make_scenario(TARGETS[target], **steps.BEHIND)
    steps.die_in_recovery_of_commits_behind(scenario, committed)
    scenario.goes_on()


def test_the_oldest_is_committed_first(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(TARGETS["files"], **steps.BEHIND)
    steps.commit_in_order(scenario)
    scenario.goes_on()


def test_a_clean_end_waits_for_the_commits(make_scenario: MakeScenario) -> None:
    steps.end_with_commits_behind(make_scenario(TARGETS["files"], **steps.BEHIND))
