"""Sinks that commit ahead, without Spark: SIGKILL while one sink has a checkpoint and another does
not, on two servers, and on a server and files or an Iceberg table; every record exactly once in
each.
"""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet

from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.scenario import Scenario

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

PAIRS = {
    "two_servers": ("mysql", "mariadb"),
    "mysql_and_files": ("mysql", "files"),
    "mariadb_and_files": ("mariadb", "files"),
    "mysql_and_iceberg": ("mysql", "iceberg"),
}
# Where the first one to acknowledge commits, the kill is in its commit ahead of the other.
POINTS = ("A01", "C12", "C15", "A02", "C06", "C07")
SECOND = ("C18", "C12", "C15", "C22", "C06")
NUMBERS = {"first": 0, "third": 2}


def sampled(points: tuple[str, ...]) -> list[ParameterSet]:
    """One pair and checkpoint of each point in every run, the others in the proof."""
    found: list[ParameterSet] = []
    for place, point in enumerate(points):
        cases = [(pair, number) for pair in PAIRS for number in NUMBERS]
        found += [
            pytest.param(*case, point, marks=[] if at == place else pytest.mark.proof)
            for at, case in enumerate(cases)
        ]
    return found


def scenario_of(make_scenario: MakeScenario, pair: str, **options: object) -> Scenario:
    return make_scenario(PAIRS[pair], **steps.AHEAD, **options)


@pytest.mark.parametrize(("pair", "number", "point"), sampled(POINTS))
def test_the_driver_is_killed_with_a_sink_ahead_at(
    make_scenario: MakeScenario, pair: str, number: str, point: str
) -> None:
    scenario = scenario_of(make_scenario, pair)
    steps.die_ahead(scenario, point, NUMBERS[number])
    scenario.goes_on()


@pytest.mark.parametrize(("pair", "number", "point"), sampled(SECOND))
def test_the_next_driver_is_killed_too_at(
    make_scenario: MakeScenario, pair: str, number: str, point: str
) -> None:
    scenario = scenario_of(make_scenario, pair)
    steps.die_ahead_twice(scenario, "A01", point, NUMBERS[number])
    scenario.goes_on()


@pytest.mark.parametrize("point", ["A01", "A02"])
def test_a_driver_in_the_other_mode_goes_on(make_scenario: MakeScenario, point: str) -> None:
    scenario = scenario_of(make_scenario, "mysql_and_files")
    steps.die_ahead(scenario, point, 1)
    scenario.change_options({"checkpoint.mode": "exactly_once"})
    scenario.goes_on()
    assert scenario.history().sink_decisions == ()
