"""Every state of every small world keeps every promise, and no state is a dead end."""

from __future__ import annotations

from functools import cache

import pytest

from harness.selection import representatives
from verification.model.configurations import LARGE, SMALL
from verification.model.explore import Exploration, explore
from verification.model.mutants import described
from verification.model.protocol import specification
from verification.model.state import State
from verification.model.world import World

WORLDS = {world.name: world for world in SMALL}
DEAR = {
    *("whole", "two drivers", "overtaken", "folded", "on MySQL 9.7", "on MariaDB", "lost folder"),
    *("rewound", "forked", "copied", "on MySQL 8.0", "ahead, two drivers"),
    *("saved, died", "half rewound, folder restored"),
    *("rewound, told", "abandoned, told"),
}
"""They cost two thirds of all; in `make test` smaller ones with the same faults stand for them, and
for a fork its mutants.
"""
REPRESENTATIVES = [world for world in SMALL if world.name not in DEAR]
AT_LEAST = 200_000


@cache
def explored(world: World) -> Exploration[State]:
    return explore(specification(world))


pytestmark = [pytest.mark.part("model"), pytest.mark.thin(3)]


@pytest.mark.parametrize("name", representatives(WORLDS, {world.name for world in REPRESENTATIVES}))
def test_every_promise_holds_in_every_state_of(name: str) -> None:
    found = explored(WORLDS[name])
    assert found.violation is None, described(found.violation)
    assert found.complete


@pytest.mark.proof
def test_the_worlds_together_are_not_small() -> None:
    assert sum(explored(world).states for world in SMALL) >= AT_LEAST


def test_every_world_has_a_name_of_its_own() -> None:
    names = [world.name for world in (*SMALL, *LARGE)]
    assert len(names) == len(set(names))
