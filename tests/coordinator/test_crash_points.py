"""The driver dies at every crash point of the protocol; the next one loses nothing, repeats
nothing, leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import JOB, Driver, offsets, visible
from twophase.coordinator.coordinator import Replay
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]
Patch = pytest.MonkeyPatch

MODULES = [
    "twophase.state.files.storage",
    "twophase.state.checkpoints.store",
    "twophase.contract.sink",
    "twophase.state.checkpoints.state_files",
    "twophase.state.journal.log",
    "twophase.coordinator.attempt",
    "twophase.coordinator.commit.checkpoint_completion",
    "twophase.coordinator.coordinator",
    "twophase.coordinator.recovery.recovery",
    "twophase.coordinator.recovery.recovery_steps",
    "twophase.testing.memory",
]
BEFORE = ["C01", "C02", "E01", "C04", "C05", "C06", "C07", "C08", "C09"]
AFTER = ["C10", "C11", "C12", "C13", "C14", "C15", "C16", "C17"]


class Crash(BaseException):
    """The driver dies here: no handler of the product may see it as a failure to clean up after."""


class CrashPoints:
    """Makes the process die at one hit of one crash point; counts the hits."""

    def __init__(self, patch: Patch) -> None:
        self.hits: dict[str, int] = {}
        self.die_at: tuple[str, int] | None = None
        for module in MODULES:
            patch.setattr(f"{module}.failpoint", self)

    def __call__(self, name: str) -> None:
        self.hits[name] = self.hits.get(name, 0) + 1
        if (name, self.hits[name]) == self.die_at:
            raise Crash(name)

    def arm(self, name: str, hit: int = 1) -> None:
        self.hits.clear()
        self.die_at = (name, hit)


@pytest.fixture
def points(monkeypatch: Patch) -> CrashPoints:
    return CrashPoints(monkeypatch)


def decided(folder: Path) -> list[int]:
    return [found.checkpoint for found in JobLog(LocalStorage(folder), JOB).read().decisions]


def runs_until_it_dies(driver: Driver) -> int:
    """The checkpoint, 2 or 3, in which the driver died."""
    for number in (2, 3):
        try:
            driver.run(number)
        except Crash:
            return number
    pytest.fail("the crash point was not reached")


def goes_on_as_if_nothing_had_happened(driver: Driver, targets: Targets) -> None:
    """A new driver recovers, Spark replays the newest micro-batch, and the job goes
    on to checkpoint 4.
    """
    driver.recover()
    assert targets["facts"].prepared == targets["lake"].prepared == {}
    newest = driver.coordinator.newest()
    assert newest is not None
    found = driver.coordinator.classify(newest.checkpoint, offsets(newest.checkpoint))
    assert isinstance(found, Replay)
    driver.coordinator.replay(found.decision, None)
    for number in range(newest.checkpoint + 1, 5):
        driver.run(number)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(50))
    assert targets["facts"].prepared == targets["lake"].prepared == {}


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("point", BEFORE)
def test_a_crash_before_the_decision_leaves_the_checkpoint_undecided(
    driver: Driver,
    targets: Targets,
    another: Another,
    points: CrashPoints,
    tmp_path: Path,
    point: str,
    hit: int,
) -> None:
    for number in (0, 1):
        driver.run(number)
    points.arm(point, hit)
    last = runs_until_it_dies(driver)
    points.die_at = None
    assert max(decided(tmp_path / "job")) == last - 1
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(last * 10))
    goes_on_as_if_nothing_had_happened(another(), targets)


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("point", AFTER)
def test_a_crash_after_the_decision_is_committed_by_the_next_driver(
    driver: Driver,
    targets: Targets,
    another: Another,
    points: CrashPoints,
    tmp_path: Path,
    point: str,
    hit: int,
) -> None:
    for number in (0, 1):
        driver.run(number)
    points.arm(point, hit)
    last = runs_until_it_dies(driver)
    points.die_at = None
    assert max(decided(tmp_path / "job")) == last
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(last * 10 + 10))
    goes_on_as_if_nothing_had_happened(another(), targets)


@pytest.mark.parametrize("point", ["C18", "C12", "C13", "C14", "C15", "C19", "C22", "C20"])
def test_a_crash_in_recovery_is_finished_by_the_next_recovery(
    driver: Driver, targets: Targets, another: Another, points: CrashPoints, point: str
) -> None:
    """Checkpoint 0 is decided and not committed, checkpoint 1 pre-committed and not decided."""
    driver.coordinator._make_room = lambda number: None  # type: ignore[method-assign]
    points.arm("C11")
    with pytest.raises(Crash):
        driver.run(0)
    points.arm("C06")
    with pytest.raises(Crash):
        driver.run(1)
    points.arm(point)
    with pytest.raises(Crash):
        another().recover()
    assert visible(targets["facts"]) in ([], [0, 1, 2, 3, 4], list(range(10)))
    points.die_at = None
    goes_on_as_if_nothing_had_happened(another(), targets)


def test_every_crash_point_of_the_protocol_is_on_the_way(
    driver: Driver, another: Another, points: CrashPoints
) -> None:
    """So that a test that arms one cannot pass without reaching it."""
    for number in range(3):
        driver.run(number)
    points.arm("C11")
    with pytest.raises(Crash):
        driver.run(3)
    driver.coordinator._make_room = lambda number: None  # type: ignore[method-assign]
    points.arm("C06")
    seen = {"C11", *points.hits}
    with pytest.raises(Crash):
        driver.run(4)
    points.die_at = None
    another().recover().run(4)
    assert {*BEFORE, *AFTER, "C18", "C19", "C20", "C22"} <= {*points.hits, *seen}
