"""Runs in each of the `worlds`: a copy of the folder beside a live driver, a target that is
restored from a backup, one that is swapped, operators, sinks that commit ahead.
"""

from __future__ import annotations

import pytest

from verification.simulation.runner import Summary, run_all
from verification.simulation.worlds import AHEAD, COPIED, OPERATED, RESTORED_TARGET, SWAPPED

pytestmark = pytest.mark.part("simulation")

SEEDS = {
    COPIED: range(100),
    RESTORED_TARGET: range(100),
    SWAPPED: range(100),
    OPERATED: range(250),
    AHEAD: range(100),
}
HAPPENS = {
    COPIED: [
        "copied: plain",
        "copied: restore",
        "copied: beside",
        "goes on in the copy",
        "goes on in the original",
    ],
    RESTORED_TARGET: [
        "target restored",
        "stopped: TargetChangedError",
        "stopped: LostCommittableError",
    ],
    SWAPPED: ["older server", "empty server", "table", "stopped: TargetChangedError"],
    OPERATED: [
        *("rolled back", "target restored", "folder restored", "body gone", "comes back"),
        *("recorded: accept-loss", "recorded: rewrite", "recorded: adopt-from-target"),
        *("recorded: abandon-rewind", "refused: too old", "A01", "A02"),
        *("forked", "forked without what is lost"),
        *("restored: here", "restored: elsewhere", "restored: here by other sources"),
        *("savepoint: finish", "savepoint: dispose", *(f"R{number:02}" for number in range(1, 7))),
        *(f"S{number:02}" for number in range(1, 14)),
    ],
    AHEAD: ["A01", "A02"],
}


@pytest.fixture(scope="module", params=list(HAPPENS))
def world(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def summary(world: str) -> Summary:
    return run_all(SEEDS[world], 1, world)


def test_every_seed_keeps_every_invariant(summary: Summary) -> None:
    assert not summary.failures, "\n\n".join(summary.failures[:10])


def test_what_makes_the_world_happens(summary: Summary, world: str) -> None:
    assert {what: summary.points[what] for what in HAPPENS[world] if not summary.points[what]} == {}


def test_the_known_limit_of_two_folders_ends_few_runs(summary: Summary, world: str) -> None:
    """Two drivers over two copies that fence at the same instant get one generation: 105 times in
    1,000 seeds.
    """
    assert (0 < summary.limits <= len(SEEDS[world]) // 5) if world == COPIED else not summary.limits
