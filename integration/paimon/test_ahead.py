"""Sinks that commit ahead, a Paimon table and files, either of them ahead: SIGKILL while one has a
checkpoint and the other does not; every record exactly once in each.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from harness.selection import first_of
from integration.paimon.scenario import PaimonScenario
from integration.without_spark import steps
from integration.without_spark.test_ahead import CHECKPOINTS, POINTS, SECOND

pytestmark = [pytest.mark.part("paimon")]

KINDS = ("paimon", "files")


@pytest.mark.parametrize(
    ("ahead", "number", "point"), first_of(1, product(KINDS, CHECKPOINTS, POINTS))
)
def test_the_driver_is_killed_with_a_sink_ahead_at(
    make_scenario: Callable[..., PaimonScenario], ahead: str, number: int, point: str
) -> None:
    scenario = make_scenario(KINDS, **steps.AHEAD)
    steps.die_ahead(scenario, ahead, point, number)
    scenario.goes_on()


@pytest.mark.parametrize(
    ("ahead", "number", "point"), first_of(1, product(KINDS, CHECKPOINTS, SECOND))
)
def test_the_next_driver_is_killed_too_at(
    make_scenario: Callable[..., PaimonScenario], ahead: str, number: int, point: str
) -> None:
    scenario = make_scenario(KINDS, **steps.AHEAD)
    steps.die_ahead_twice(scenario, ahead, "A01", point, number)
    scenario.goes_on()
