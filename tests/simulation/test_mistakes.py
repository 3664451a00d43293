"""The simulation finds what is wrong: each mistake of `mutations.py` breaks an invariant within so many seeds."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.mutations import MISTAKES, broken
from tests.simulation.options import Options
from tests.simulation.supervisor import run

SEEDS = 1500


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_found(name: str) -> None:
    changes = MISTAKES[name].options
    with broken(name):
        for seed in range(SEEDS):
            if run(dataclasses.replace(Options.of(seed), **changes)).violation:
                return
    pytest.fail(f"{SEEDS} seeds did not find that {name}")
