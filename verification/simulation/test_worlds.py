"""Runs in each of the `worlds`: a copy of the folder beside a live driver, a target that is
restored from a backup, one that is swapped, repairs, savepoints, sinks that commit ahead.
"""

from __future__ import annotations

import pytest

from verification.simulation.runner import Summary, run_all
from verification.simulation.worlds import (
    AHEAD,
    COPIED,
    REPAIRED,
    RESTORED_TARGET,
    SAVED,
    SAVED_AHEAD,
    SWAPPED,
)

pytestmark = pytest.mark.part("simulation")

SEEDS = {
    COPIED: range(100),
    RESTORED_TARGET: range(100),
    SWAPPED: range(100),
    REPAIRED: range(20),
    SAVED: range(80),
    AHEAD: range(100),
    SAVED_AHEAD: range(60),
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
    REPAIRED: [
        *("rolled back", "target restored", "folder restored", "body gone", "comes back"),
        *("recorded: accept-loss", "recorded: rewrite", "recorded: adopt-from-target"),
        *("R01", "R02", "R03", "R04", "R05"),
    ],
    SAVED: [
        *("saved: beside", "saved: stopped", "saved: dead", "refused: too old", "not restored"),
        *("restored: here", "restored: moved", "restored: here by other sources"),
        *("the job's folder is gone", "savepoint finish", "savepoint dispose"),
        *("restored with a rewind", "forked", *(f"S{number:02}" for number in range(1, 14))),
    ],
    AHEAD: ["A01", "A02"],
    SAVED_AHEAD: [
        *("A01", "A02", "refused: too old", "restored with a rewind", "forked"),
        *("restored: here", "restored: moved"),
    ],
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
