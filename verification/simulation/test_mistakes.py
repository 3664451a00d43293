"""The simulation finds what is wrong: each mistake of `mutations.py` breaks an invariant
within so many seeds.
"""

from __future__ import annotations

import pytest

from harness.selection import representatives
from verification.simulation.mutations import MISTAKES, broken
from verification.simulation.options import Options
from verification.simulation.supervisor import run

SEEDS = 1500
FEWER_SEEDS = 300
TRIED_FIRST = {
    "an adoption of several lineages leaves the pieces that wait": (6401, 8418),
    "one thread appends after the other has met a doubt": range(3770, 3790),
}
"""Seeds that have found what takes thousands, and find it again until the schedules change."""
DEAR = {
    "a fork begins before what its savepoint holds is committed",
    "a commit does not require its predecessor",
    "a decision of unclear outcome is aborted",
    "a lock wait inside a branch is passed over",
    "a restart takes its own unclear fence for a rival's",
    "a restart forgets its generation",
    "a rewind leaves decided checkpoints to be committed later",
    "a rewind that has begun leaves a sink ahead",
    "a savepoint is called finished before it is committed",
    "a savepoint is restored while a sink is ahead of it",
    "a server is known by its address alone",
    "a sink without orphans is not scanned again after its fence",
    "a writer does not look at the fence",
    "an abort does not wait for the writer's session",
    "an adoption of several lineages leaves the pieces that wait",
    "MariaDB is asked as soon as a session is off the list",
    "one thread appends after the other has met a doubt",
    "the ledger is collapsed before the mark is raised",
    "the ledger is read without a lock",
    "the mark is raised to what a target lacks",
    "the note of who has written a folder is deleted first",
    "what a restore has written stays when it dies",
}
"""Those that may take a hundred seeds and more to be found: nine tenths of what all cost."""

pytestmark = [pytest.mark.part("simulation"), pytest.mark.thin(4)]


@pytest.mark.parametrize("name", representatives(MISTAKES, {*MISTAKES} - DEAR))
def test_a_mistake_is_found(name: str) -> None:
    with broken(name):
        for options in MISTAKES[name].runs([*TRIED_FIRST.get(name, ()), *range(SEEDS)]):
            if run(options).violation:
                return
    pytest.fail(f"{SEEDS} seeds did not find that {name}")


@pytest.mark.proof
@pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.world])
def test_a_mistake_that_shows_in_a_world_shows_in_no_other_run(name: str) -> None:
    with broken(name):
        assert not [seed for seed in range(FEWER_SEEDS) if run(Options.of(seed)).violation]
