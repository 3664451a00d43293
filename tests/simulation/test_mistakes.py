"""The simulation finds what is wrong: each mistake of `mutations.py` breaks an invariant within so many seeds."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MISTAKES, broken
from tests.simulation.options import Options
from tests.simulation.supervisor import run

SEEDS = 1500
FEWER_SEEDS = 300


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_found(name: str) -> None:
    with broken(name):
        for options in MISTAKES[name].runs(range(SEEDS)):
            if run(options).violation:
                return
    pytest.fail(f"{SEEDS} seeds did not find that {name}")


@pytest.mark.proof
@pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.world])
def test_a_mistake_that_shows_in_a_world_shows_in_no_other_run(name: str) -> None:
    with broken(name):
        assert not [seed for seed in range(FEWER_SEEDS) if run(Options.of(seed)).violation]
