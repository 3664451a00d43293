"""SIGKILL and SIGSTOP of drivers at every crash point, on an Iceberg table in each kind of catalog
in a branch and of format version 1: as `test_kills.py` and `test_zombies.py` do on each kind of
target.
"""

from __future__ import annotations

from itertools import product

import pytest

from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.scenario import CATALOGS, VERSIONS
from integration.without_spark.test_kills import CHECKPOINTS, cases

pytestmark = [pytest.mark.part("without_spark")]

IN_EVERY_RUN = {
    ("iceberg_rest", "third", "D01"),
    ("iceberg_rest", "third", "D02"),
    ("iceberg_hive", "first", "D02"),
    ("iceberg_mysql", "first", "D01"),
    ("iceberg_branch", "third", "D02"),
    ("iceberg_rest", "first", "C20"),
    ("iceberg_hive", "third", "F06"),
    ("iceberg_rest", "first", "C05"),
    ("iceberg_v1", "third", "D02"),
}
TARGETS = CATALOGS | VERSIONS


def marked(table: str) -> list[object]:
    return [
        pytest.param(*case, marks=[] if case in IN_EVERY_RUN else pytest.mark.proof)
        for case in cases(table, TARGETS)
    ]


@pytest.mark.parametrize(("target", "checkpoint", "point"), marked("workers"))
def test_all_is_killed_with_the_workers_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.die_in_workers(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(("target", "checkpoint", "point"), marked("checkpoint"))
def test_the_driver_is_killed_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.die_in_checkpoint(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(("target", "checkpoint", "point"), marked("recovery"))
def test_recovery_is_killed_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.die_in_recovery(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


ZOMBIES = [("iceberg_rest", "D01"), ("iceberg_hive", "D01")]
TABLES = ("workers", "checkpoint", "recovery")
_POINTS = dict.fromkeys(case[2] for table in TABLES for case in cases(table, TARGETS))
_OTHERS = [case for case in product(TARGETS, _POINTS) if case not in ZOMBIES]


@pytest.mark.parametrize(
    ("target", "point"),
    [*ZOMBIES, *(pytest.param(*case, marks=pytest.mark.proof) for case in _OTHERS)],
)
def test_a_driver_that_was_stopped_is_fenced_out_at(
    make_scenario: MakeScenario, target: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.be_fenced_out(scenario, point)
    scenario.goes_on()
