"""One checkpoint over a topic, a table of MySQL and one of Iceberg: the driver is killed before,
between and behind their commits, and each of them has every record once.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.points import IN_THREE, THREE_IN_RECOVERY

pytestmark = [pytest.mark.part("without_spark")]

KINDS = ("kafka", "mysql", "iceberg")
CHECKPOINTS = {"first": 0, "third": 2}
BETWEEN = {("first", "C15", 1), ("third", "C15", 2)}
IN_RECOVERY = {("third", "C15", 1), ("first", "C20", 3)}


def cases(points: Any, chosen: set[tuple[str, str, int]]) -> list[Any]:
    """Checkpoint, point and hit; `make test` takes the chosen ones, `make proof` all of them."""
    found = [(checkpoint, *at) for checkpoint, at in product(CHECKPOINTS, points)]
    assert chosen <= {*found}
    return [
        pytest.param(*case, marks=[] if case in chosen else pytest.mark.proof) for case in found
    ]


@pytest.mark.parametrize(("checkpoint", "point", "hit"), cases(IN_THREE, BETWEEN))
def test_the_driver_is_killed_at(
    make_scenario: MakeScenario, checkpoint: str, point: str, hit: int
) -> None:
    scenario = make_scenario(KINDS)
    steps.die_in_checkpoint(scenario, point, CHECKPOINTS[checkpoint], IN_THREE[point, hit], hit)
    scenario.goes_on()


@pytest.mark.parametrize(("checkpoint", "point", "hit"), cases(THREE_IN_RECOVERY, IN_RECOVERY))
def test_recovery_is_killed_at(
    make_scenario: MakeScenario, checkpoint: str, point: str, hit: int
) -> None:
    scenario = make_scenario(KINDS)
    found = THREE_IN_RECOVERY[point, hit]
    steps.die_in_recovery(scenario, point, CHECKPOINTS[checkpoint], found, hit)
    scenario.goes_on()
