"""300 runs, 2,000 in the proof: every invariant holds in each, and together they reach every crash
point of the protocol.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from verification.simulation.options import POINTS, Options
from verification.simulation.runner import Summary, run_all
from verification.simulation.supervisor import run
from verification.simulation.worlds import WORLDS

SEEDS = range(300)
MORE_SEEDS = range(300, 2000)
SIDE_BY_SIDE_SEEDS = range(100)
MORE_SIDE_BY_SIDE_SEEDS = range(100, 800)
CHAINED_SEEDS = range(100)
MORE_CHAINED_SEEDS = range(100, 1500)
PROCESSES = min(2, len(os.sched_getaffinity(0)))
ROOT = Path(__file__).parents[2]
PRODUCT = ("twophase/coordinator", "twophase/state", "sinks/mysql")


pytestmark = pytest.mark.part("simulation")


def mostly_proof(few: range, more: range) -> list[ParameterSet]:
    """`make test` takes a few of the seeds."""
    return [
        pytest.param(few, id=str(few)),
        pytest.param(more, id=str(more), marks=pytest.mark.proof),
    ]


@pytest.fixture(scope="module", params=mostly_proof(SEEDS, MORE_SEEDS))
def summary(request: pytest.FixtureRequest) -> Summary:
    found = run_all(request.param, PROCESSES)
    assert found.seeds == len(request.param)
    return found


def test_every_seed_keeps_every_invariant(summary: Summary) -> None:
    assert not summary.failures, "\n\n".join(summary.failures[:10])


def test_a_driver_does_not_take_an_observer_s_call_of_another_one_for_its_own() -> None:
    """The tasks of both share a thread: the second did not wait for the end of its query."""
    assert not run(Options.of(808)).violation


@pytest.mark.parametrize("seeds", mostly_proof(SIDE_BY_SIDE_SEEDS, MORE_SIDE_BY_SIDE_SEEDS))
def test_every_seed_keeps_every_invariant_with_its_sinks_side_by_side(seeds: range) -> None:
    options = (replace(Options.of(seed), side_by_side=True) for seed in seeds)
    outcomes = [run(option) for option in options if len(option.sinks) > 1]
    assert len(outcomes) > len(seeds) // 4
    assert not [str(outcome) for outcome in outcomes if outcome.violation]
    assert any(
        outcome.digest != run(Options.of(outcome.options.seed)).digest for outcome in outcomes[:5]
    )


@pytest.mark.parametrize("seeds", mostly_proof(CHAINED_SEEDS, MORE_CHAINED_SEEDS))
def test_every_seed_keeps_every_invariant_with_its_sinks_chained(seeds: range) -> None:
    outcomes = [run(replace(Options.of(seed), chained=True)) for seed in seeds]
    assert not [str(outcome) for outcome in outcomes if outcome.violation]
    assert sum(len(outcome.options.sinks) > 1 for outcome in outcomes) > len(seeds) // 4


def points_of_the_product() -> set[str]:
    """Every crash point of a driver that the code names; those of a repair (R..), of savepoints
    (S..), of the files of large states (O..), of a job that gives its checkpoints up (G..) and of
    sinks that commit ahead (A..) have tests of their own.
    """
    text = "".join(
        path.read_text() for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))
    )
    return {
        name
        for call in re.findall(r"(?:failpoint|CrashPoints)\((.*)\)", text)
        for name in re.findall(r'"(\w+)"', call)
        if not name.startswith(("A", "K", "M", "O", "R", "S"))
    }


def test_every_crash_point_is_reached(summary: Summary) -> None:
    missed = points_of_the_product() - {point for point, count in summary.points.items() if count}
    assert not missed, f"never reached: {sorted(missed)}; reached: {sorted(summary.points.items())}"


def test_drivers_die_at_every_crash_point_of_the_product() -> None:
    assert points_of_the_product() <= set(POINTS)


def test_a_seed_does_the_same_each_time() -> None:
    first = [run(Options.of(seed)) for seed in range(20)]
    again = [run(Options.of(seed)) for seed in range(20)]
    for one, other in zip(first, again, strict=True):
        assert one.trace == other.trace
        assert one.digest == other.digest


@pytest.mark.parametrize("world", ["", *WORLDS])
def test_a_seed_does_the_same_whatever_the_hash_seed_and_the_number_of_processes(
    world: str,
) -> None:
    def digest(hash_seed: str, processes: str) -> str:
        command = [
            sys.executable,
            "-m",
            "verification.simulation",
            "--seeds",
            "20",
            "--digest",
            "--processes",
            processes,
            *(["--world", world] if world else []),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert digest("1", "1") == digest("2", "2")


def test_another_seed_does_something_else() -> None:
    assert len({run(Options.of(seed)).digest for seed in range(30)}) == 30
