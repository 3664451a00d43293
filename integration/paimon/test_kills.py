"""SIGKILL at every crash point of a plain job into a Paimon table, and drivers that were stopped
there and go on: every record exactly once. See `integration/without_spark`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from integration.paimon.scenario import PaimonScenario
from integration.without_spark import steps
from integration.without_spark.points import NEEDS_OLDER, in_checkpoint, in_recovery, in_workers

pytestmark = [pytest.mark.part("paimon")]

MakeScenario = Callable[..., PaimonScenario]
KINDS = ("paimon",)
CHECKPOINTS = {"first": 0, "third": 2}
_IN_EVERY_RUN = {
    *(("third", "D02"), ("first", "D01"), ("third", "F04"), ("first", "C14"), ("third", "C05")),
    *(("third", "F06"), ("first", "C13"), ("third", "C20")),
}


def cases(points: Any) -> list[Any]:
    """Checkpoint and point of each case; a few stay in `make test`."""
    found = [
        (checkpoint, point)
        for checkpoint, point in product(CHECKPOINTS, points)
        if not (checkpoint == "first" and point in NEEDS_OLDER)
    ]
    return [
        pytest.param(*case, marks=[] if case in _IN_EVERY_RUN else pytest.mark.proof)
        for case in found
    ]


@pytest.mark.parametrize(("checkpoint", "point"), cases(in_workers(KINDS)))
def test_all_is_killed_with_the_workers_at(
    make_scenario: MakeScenario, checkpoint: str, point: str
) -> None:
    scenario = make_scenario()
    steps.die_in_workers(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(("checkpoint", "point"), cases(in_checkpoint(KINDS)))
def test_the_driver_is_killed_at(make_scenario: MakeScenario, checkpoint: str, point: str) -> None:
    scenario = make_scenario()
    steps.die_in_checkpoint(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(("checkpoint", "point"), cases(in_recovery(KINDS)))
def test_recovery_is_killed_at(make_scenario: MakeScenario, checkpoint: str, point: str) -> None:
    scenario = make_scenario()
    steps.die_in_recovery(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(("checkpoint", "point"), cases(("E01", "E02")))
def test_a_worker_is_killed_at(make_scenario: MakeScenario, checkpoint: str, point: str) -> None:
    scenario = make_scenario()
    steps.lose_a_worker(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


ZOMBIES = [
    *dict.fromkeys([*in_workers(KINDS), *in_checkpoint(KINDS), *in_recovery(KINDS)]),
]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point in ("D01", "C12") else pytest.mark.proof)
        for point in ZOMBIES
    ],
)
def test_a_driver_that_was_stopped_is_fenced_out_at(
    make_scenario: MakeScenario, point: str
) -> None:
    scenario = make_scenario()
    steps.be_fenced_out(scenario, point)
    scenario.goes_on()


@pytest.mark.proof
@pytest.mark.parametrize("point", ["C06", "C07", "C08", "C09"])
def test_a_driver_that_was_stopped_is_fenced_out_by_the_fence_alone_at(
    make_scenario: MakeScenario, point: str
) -> None:
    scenario = make_scenario()
    steps.be_fenced_out_at_once(scenario, point)
    scenario.goes_on()


def test_the_plan_has_every_crash_point_of_the_protocol_and_of_the_sink() -> None:
    protocol = {f"C{number:02}" for number in range(1, 21)} | {"C22", "E01", "E02"}
    own = {"F01", "F02", "F04", "F06", "D01", "D02"}
    assert {*ZOMBIES} == protocol | own
