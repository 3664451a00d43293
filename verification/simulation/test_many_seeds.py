"""10,000 more runs of the simulation; `make simulate SEEDS=n` takes as many as you like."""

from __future__ import annotations

import pytest

from verification.simulation.repairs import SEVERAL_LINEAGES
from verification.simulation.runner import run_all
from verification.simulation.test_seeds import MORE_SEEDS, PROCESSES
from verification.simulation.test_worlds import HAPPENS
from verification.simulation.test_worlds import SEEDS as SEEDS_OF_WORLDS
from verification.simulation.worlds import NO_FOLDER, OPERATED, WORLDS

pytestmark = [pytest.mark.part("simulation"), pytest.mark.proof, pytest.mark.timeout(1800)]

MORE = 10_000
MORE_OF_A_WORLD = 1000


def test_every_seed_keeps_every_invariant() -> None:
    summary = run_all(range(MORE_SEEDS.stop, MORE_SEEDS.stop + MORE), PROCESSES)
    assert summary.seeds == MORE
    assert not summary.failures, "\n\n".join(summary.failures[:10])


@pytest.mark.parametrize("world", WORLDS)
def test_every_seed_keeps_every_invariant_in_a_world(world: str) -> None:
    seeds = range(SEEDS_OF_WORLDS[world].stop, SEEDS_OF_WORLDS[world].stop + MORE_OF_A_WORLD)
    summary = run_all(seeds, PROCESSES, world)
    assert not summary.failures, "\n\n".join(summary.failures[:10])
    happens = [*HAPPENS[world], *([NO_FOLDER, SEVERAL_LINEAGES] if world == OPERATED else [])]
    assert not [what for what in happens if not summary.points[what]]
