"""A job goes on with another number of tasks while a checkpoint waits for its commit."""

from __future__ import annotations

from itertools import permutations

import pytest

from harness.selection import representatives
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.scenario import BATCH, TARGETS, State
from integration.without_spark.targets import Pieces

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

PAIRS = [f"{before} to {after}" for before, after in permutations((1, 2, 3, 7), 2)]


@pytest.mark.parametrize("pair", representatives(PAIRS, {"1 to 7", "7 to 2"}))
@pytest.mark.parametrize("target", ["mysql", "files"])
def test_what_waits_is_committed_and_the_next_checkpoints_have_other_pieces(
    make_scenario: MakeScenario, target: str, pair: str
) -> None:
    before, after = map(int, pair.split(" to "))
    scenario = make_scenario(TARGETS[target])
    scenario.settings["tasks"] = before
    scenario.produce(2)
    ended = scenario.run("C11=kill", arm_from=1)
    assert ended.killed, ended.output
    scenario.check_state(State(2, 1, 2, 1, (Pieces(before, 0, BATCH),)))
    scenario.settings["tasks"] = after
    scenario.produce(1)
    ended = scenario.run("C11=kill", arm_from=2)
    assert ended.killed, ended.output
    scenario.check_state(State(3, 2, 3, 2, (Pieces(after, 0, 2 * BATCH),)))
    scenario.goes_on()
