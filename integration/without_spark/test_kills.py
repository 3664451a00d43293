"""SIGKILL at every crash point, without Spark: real servers and folders, real processes, every
record exactly once.

Each case is a job of its own. After the kill the job's log, the prepared pieces and the visible
rows have to be as the table in `points` says; then another driver recovers, and one more
checkpoint changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import pytest

from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.driver import CONTROL
from integration.without_spark.points import NEEDS_OLDER, in_checkpoint, in_recovery, in_workers
from integration.without_spark.scenario import TARGETS
from integration.without_spark.targets import SqlTarget

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

CHECKPOINTS = {"first": 0, "third": 2}
OF_WORKERS = ("E01", "E02")
_STRIDE = 3  # of no common divisor with the eight cases of a point


def cases(
    table: str, targets: Mapping[str, tuple[str, ...]] = TARGETS
) -> list[tuple[str, str, str]]:
    """Target, checkpoint and point of each case of one table."""
    tables: dict[str, Callable[[tuple[str, ...]], Iterable[str]]] = {
        "workers": in_workers,
        "checkpoint": in_checkpoint,
        "recovery": in_recovery,
    }
    points = tables[table]
    return [
        (target, checkpoint, point)
        for target, kinds in targets.items()
        for checkpoint in CHECKPOINTS
        for point in points(kinds)
        if not (checkpoint == "first" and point in NEEDS_OLDER)
    ]


def marked(found: list[tuple[str, str, str]]) -> list[Any]:
    """Of the cases of each point one stays in every run, on each target and in each checkpoint in
    turn; the others are marked `proof`.
    """
    stay = set()
    for number, point in enumerate(dict.fromkeys(case[2] for case in found)):
        those = [case for case in found if case[2] == point]
        stay.add(those[number * _STRIDE % len(those)])
    return [pytest.param(*case, marks=[] if case in stay else pytest.mark.proof) for case in found]


@pytest.mark.parametrize(("target", "checkpoint", "point"), marked(cases("workers")))
def test_all_is_killed_with_the_workers_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.die_in_workers(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(("target", "checkpoint", "point"), marked(cases("checkpoint")))
def test_the_driver_is_killed_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.die_in_checkpoint(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(("target", "checkpoint", "point"), marked(cases("recovery")))
def test_recovery_is_killed_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.die_in_recovery(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


@pytest.mark.parametrize(
    ("target", "checkpoint", "point"), marked([*product(TARGETS, CHECKPOINTS, OF_WORKERS)])
)
def test_a_worker_is_killed_at(
    make_scenario: MakeScenario, target: str, checkpoint: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.lose_a_worker(scenario, point, CHECKPOINTS[checkpoint])
    scenario.goes_on()


def test_the_plan_has_every_crash_point_of_the_protocol() -> None:
    protocol = {f"C{number:02}" for number in range(1, 21)} | {"C22", "E01", "E02"}
    for target in TARGETS:
        planned = {
            case[2]
            for table in ("workers", "checkpoint", "recovery")
            for case in cases(table)
            if case[0] == target
        }
        own = {
            "files": {"F01", "F02", "F03", "F04", "F06"},
            "iceberg": {"F01", "F02", "F06", "D01", "D02"},
            "staged_kafka": {"K01", "K02"},
        }
        assert planned == protocol | own.get(target, set())


@pytest.mark.parametrize(
    ("control", "seen"),
    [("duplicates", "duplicated"), pytest.param("losses", "lost", marks=pytest.mark.proof)],
)
def test_without_the_protocol_the_checker_sees(
    make_scenario: MakeScenario, control: str, seen: str
) -> None:
    """The negative controls: the same kill, the protocol switched off in the harness."""
    scenario = make_scenario(TARGETS["mysql"])
    [(name, target)] = scenario.targets.items()
    assert isinstance(target, SqlTarget)
    scenario.settings |= {"control": control, "connection": target.connection()}
    scenario.produce(2)
    steps.killed(scenario.run(f"{CONTROL}=kill@1"), CONTROL)
    scenario.finish()
    verdict = scenario.verdict(name)
    assert getattr(verdict, seen) > 0, verdict
    assert not verdict.exact
