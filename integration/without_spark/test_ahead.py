"""Sinks that commit ahead, without Spark: SIGKILL while one sink has a checkpoint and another does
not, on two servers, and on a server and files, an Iceberg table or a topic, either of them ahead;
every record exactly once in each.
"""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet

from harness.selection import first_of
from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.scenario import Scenario

pytestmark = [pytest.mark.part("without_spark")]

PAIRS = (
    ("mysql", "mariadb"),
    ("mysql", "files"),
    ("mariadb", "files"),
    ("mysql", "iceberg"),
    ("mysql", "kafka"),
    ("mysql", "staged_kafka"),
)
AHEAD = [(pair, ahead) for pair in PAIRS for ahead in pair]
# Where the first one to acknowledge commits, the kill is in its commit ahead of the other.
POINTS = ("A01", "C12", "C15", "A02", "C06", "C07")
SECOND = ("C18", "C12", "C15", "C22", "C06")
CHECKPOINTS = (0, 2)


def sampled(points: tuple[str, ...], begin: int) -> list[ParameterSet]:
    """Each sink ahead at each point, by turns in the first checkpoint and in the third; one of them
    at each of three points in every run, the others in the proof.

    Args:
        points: the crash points.
        begin: the sink that stays at the first point.
    """
    found: list[ParameterSet] = []
    for place, point in enumerate(points):
        for at, (pair, ahead) in enumerate(AHEAD):
            stays = place < 3 and at == (begin + 5 * place) % len(AHEAD)
            number = CHECKPOINTS[(place + at) % 2]
            marks = [] if stays else [pytest.mark.proof]
            name = f"{point}-{ahead} of {' and '.join(pair)}-{number}"
            found.append(pytest.param(pair, ahead, number, point, marks=marks, id=name))
    return found


def scenario_of(make_scenario: MakeScenario, pair: tuple[str, str]) -> Scenario:
    return make_scenario(pair, **steps.AHEAD)


@pytest.mark.parametrize(("pair", "ahead", "number", "point"), sampled(POINTS, 1))
def test_the_driver_is_killed_with_a_sink_ahead_at(
    make_scenario: MakeScenario, pair: tuple[str, str], ahead: str, number: int, point: str
) -> None:
    scenario = scenario_of(make_scenario, pair)
    steps.die_ahead(scenario, ahead, point, number)
    scenario.goes_on()


@pytest.mark.parametrize(("pair", "ahead", "number", "point"), sampled(SECOND, 9))
def test_the_next_driver_is_killed_too_at(
    make_scenario: MakeScenario, pair: tuple[str, str], ahead: str, number: int, point: str
) -> None:
    scenario = scenario_of(make_scenario, pair)
    steps.die_ahead_twice(scenario, ahead, "A01", point, number)
    scenario.goes_on()


@pytest.mark.parametrize("point", first_of(1, ["A01", "A02"]))
def test_a_driver_in_the_other_mode_goes_on(make_scenario: MakeScenario, point: str) -> None:
    scenario = scenario_of(make_scenario, ("mysql", "files"))
    steps.die_ahead(scenario, "mysql", point, 1)
    scenario.change_options({"checkpoint.mode": "exactly_once"})
    scenario.goes_on()
    assert scenario.history().sink_decisions == ()
