"""The same kills and zombies of jobs whose tasks write to both sinks, as those of a chain do."""

from __future__ import annotations

from itertools import product

import pytest

from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.points import (
    IN_CHAIN,
    IN_CHAIN_WITH_FILES,
    IN_CHECKPOINT,
    IN_RECOVERY,
    NEEDS_OLDER,
)
from integration.without_spark.scenario import Scenario

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

TARGETS = {"servers": ("mysql", "mariadb"), "with_files": ("mysql", "files")}
IN_WORKERS = {"servers": IN_CHAIN, "with_files": IN_CHAIN_WITH_FILES}
AT_WORKERS = [(target, *at) for target, points in IN_WORKERS.items() for at in points]
CHECKPOINTS = {"first": 0, "third": 2}


def chained(make_scenario: MakeScenario, target: str) -> Scenario:
    scenario = make_scenario(TARGETS[target])
    scenario.settings["chained"] = True
    return scenario


@pytest.mark.thin(5)
@pytest.mark.parametrize(("target", "point", "hit"), AT_WORKERS)
def test_all_is_killed_while_a_worker_is_at(
    make_scenario: MakeScenario, target: str, point: str, hit: int
) -> None:
    scenario = chained(make_scenario, target)
    steps.die_in_chain(scenario, point, hit, 1, IN_WORKERS[target][point, hit])
    scenario.goes_on()


@pytest.mark.thin(7)
@pytest.mark.parametrize(("target", "point", "hit"), AT_WORKERS)
def test_a_worker_is_killed_at(
    make_scenario: MakeScenario, target: str, point: str, hit: int
) -> None:
    scenario = chained(make_scenario, target)
    steps.lose_a_worker(scenario, point, 1, hit)
    scenario.goes_on()


@pytest.mark.thin(13)
@pytest.mark.parametrize(
    ("target", "checkpoint", "point"),
    [
        case
        for case in product(TARGETS, CHECKPOINTS, IN_CHECKPOINT)
        if case[1:] not in {("first", point) for point in NEEDS_OLDER}
    ],
)
def test_the_driver_is_killed_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = chained(make_scenario, target)
    steps.die_in_checkpoint(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.thin(11)
@pytest.mark.parametrize(
    ("target", "checkpoint", "point"), [*product(TARGETS, CHECKPOINTS, IN_RECOVERY)]
)
def test_recovery_is_killed_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = chained(make_scenario, target)
    steps.die_in_recovery(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.thin(6)
@pytest.mark.parametrize(("target", "point", "hit"), AT_WORKERS)
def test_a_worker_that_was_stopped_leaves_nothing_at(
    make_scenario: MakeScenario, target: str, point: str, hit: int
) -> None:
    scenario = chained(make_scenario, target)
    steps.be_fenced_out_in_chain(scenario, point, hit)
    scenario.goes_on()
