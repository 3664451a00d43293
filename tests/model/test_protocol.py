"""Every state of every small world keeps every promise, and no state is a dead end."""

from __future__ import annotations

from functools import cache

import pytest

from tests.model.configurations import LARGE, SMALL
from tests.model.explore import Exploration, explore
from tests.model.mutants import told
from tests.model.protocol import specification
from tests.model.state import State
from tests.model.world import World

AT_LEAST = 200_000


@cache
def explored(world: World) -> Exploration[State]:
    return explore(specification(world))


pytestmark = pytest.mark.part("model")


@pytest.mark.parametrize("world", SMALL, ids=lambda world: world.name)
def test_every_promise_holds_in_every_state_of(world: World) -> None:
    found = explored(world)
    assert found.violation is None, told(found.violation)
    assert found.complete


def test_the_worlds_together_are_not_small() -> None:
    assert sum(explored(world).states for world in SMALL) >= AT_LEAST


def test_every_world_has_a_name_of_its_own() -> None:
    names = [world.name for world in (*SMALL, *LARGE)]
    assert len(names) == len(set(names))
