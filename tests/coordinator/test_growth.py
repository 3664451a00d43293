"""Nothing grows for ever (hazard H68): whatever drivers die of, and whoever fails each time,
folders and tables stay small.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import Driver, completed_of, offsets, restoring, visible
from tests.coordinator.test_crash_points import Crash, CrashPoints
from twophase.errors import FencedError, TargetUnreachableError
from twophase.events import CheckpointCommitted
from twophase.ids import Attempt
from twophase.state.checkpoints.store import _FOLD_AT
from twophase.state.files.storage import LocalStorage
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: Patch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def points(monkeypatch: Patch) -> CrashPoints:
    return CrashPoints(monkeypatch)


def records(folder: Path) -> int:
    return len(list((folder / "job" / "log").iterdir()))


def bodies(folder: Path) -> int:
    return len(list((folder / "job" / "chk").iterdir()))


def next_of(driver: Driver) -> int:
    newest = driver.coordinator.newest()
    return newest.checkpoint + 1 if newest else 0


def test_records_of_folds_that_died_are_deleted(
    another: Another, points: CrashPoints, tmp_path: Path
) -> None:
    for _ in range(6):
        driver = another().recover()
        while driver.context.log.length() + 2 < _FOLD_AT:
            driver.run(next_of(driver))
        points.arm("C17", 2)  # the first is a body's
        with pytest.raises(Crash):
            driver.run(next_of(driver))
        points.arm("none")
        assert records(tmp_path) >= _FOLD_AT
    another().recover()
    assert records(tmp_path) < _FOLD_AT


class Failing:
    """A listener that fails each time it hears that a checkpoint is complete."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        self.heard.append(checkpoint)
        raise RuntimeError("a metrics server is down")

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        raise AssertionError

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        raise AssertionError


def test_a_listener_that_fails_each_time_lets_nothing_grow(
    another: Another, targets: Targets, tmp_path: Path
) -> None:
    listener = Failing()
    for number in range(60):
        driver = another(listeners=[listener]).recover()
        with pytest.raises(RuntimeError):
            driver.run(number)
        assert bodies(tmp_path) == 1
        assert records(tmp_path) <= _FOLD_AT
        assert len(targets["facts"].ledger) <= 2 * 16
        assert [event.checkpoint for event in driver.of(CheckpointCommitted)] == [number]
    assert listener.heard == list(range(60))
    assert visible(targets["facts"]) == list(range(600))


@pytest.mark.parametrize("point", ["C11", "C12", "C15", "C16"])
def test_drivers_that_die_in_each_commit_let_nothing_grow(
    point: str, another: Another, targets: Targets, points: CrashPoints, tmp_path: Path
) -> None:
    for number in range(60):
        points.arm("none")
        driver = another().recover()
        points.arm(point)
        with pytest.raises(Crash):
            driver.run(number)
        assert bodies(tmp_path) <= 3, (
            "the newest committed, the one that recovery has just committed, the new one"
        )
        assert records(tmp_path) <= _FOLD_AT + 2
        assert len(targets["facts"].ledger) <= 2 * 17


def test_starts_that_fail_after_their_fence_let_nothing_grow(
    driver: Driver, another: Another, targets: Targets, tmp_path: Path, monkeypatch: Patch
) -> None:
    """A target that is down for a day, say."""
    driver.run(0)

    def down(self: OpenMemorySink, attempt: Attempt) -> None:
        raise TargetUnreachableError("no route to host")

    with monkeypatch.context() as patch:
        patch.setattr(OpenMemorySink, "fence", down)
        for _ in range(100):
            with pytest.raises(TargetUnreachableError):
                another().recover()
            assert records(tmp_path) <= _FOLD_AT
    another().recover().run(1)
    assert visible(targets["facts"]) == list(range(20))


def test_torn_temporary_names_in_the_log_are_deleted_and_those_of_a_newer_driver_are_not(
    driver: Driver, another: Another, tmp_path: Path
) -> None:
    log = tmp_path / "job" / "log"
    last = max(int(path.name) for path in log.iterdir())
    ours, theirs = (log / f".tmp-{number:010d}-0011223344556677" for number in (last + 1, last + 9))
    ours.write_bytes(b"twophase/1 FE")
    theirs.write_bytes(b"twophase/1 FE")
    another().recover()
    assert not ours.exists()
    assert theirs.exists(), "whoever makes it has gone on from a fence that we have not seen"


def test_i7_a_driver_whose_temporary_name_was_swept_away_is_fenced(
    driver: Driver, another: Another, targets: Targets, tmp_path: Path, monkeypatch: Patch
) -> None:
    """It stood still between the write of its decision and the link."""
    link, rivals = LocalStorage._link, list[Driver]()

    def overtaken(temporary: Path, final: Path) -> None:
        if final.parent.name == "log" and not rivals:
            rivals.append(another())
            rivals[0].recover()
        link(temporary, final)

    monkeypatch.setattr(LocalStorage, "_link", staticmethod(overtaken))
    with pytest.raises(FencedError, match="written by another driver"):
        driver.run(0)
    rivals[0].run(0)
    assert visible(targets["facts"]) == list(range(10))


def test_what_a_lineage_leaves_in_the_ledger_is_collapsed_by_the_one_that_continues_it(
    driver: Driver, another: Another, targets: Targets, tmp_path: Path
) -> None:
    for number in range(20):
        driver.run(number)
    first = driver.coordinator.lineage.id
    assert {key[2:4] for key in targets["facts"].ledger} == {
        (first, number) for number in range(16, 20)
    }
    restore = restoring(completed_of(tmp_path / "job", 19), committed=True)
    restored = another()
    restored.coordinator.recover(restore=restore)
    restored.coordinator.begin_lineage(restore.lineage)
    before = {name: sink.history().committed for name, sink in restored.sinks.items()}
    restored.coordinator.checkpoint(1, offsets(20), restored.write)
    for name, target in targets.items():
        assert {key[2] for key in target.ledger} == {restore.lineage.id}
        assert restored.sinks[name].history().committed == {**before[name], restore.lineage.id: 1}


@pytest.mark.parametrize("number", [1, 3, 16], ids=["at once", "before a mark", "after a mark"])
def test_what_a_lineage_left_behind_is_collapsed_by_the_next_start(
    driver: Driver,
    another: Another,
    targets: Targets,
    tmp_path: Path,
    monkeypatch: Patch,
    number: int,
) -> None:
    """The driver that continued it died between its first checkpoint and the collapse, or
    did not collapse it.
    """
    driver.run(0)
    ledger = targets["facts"].ledger
    left = set(ledger)
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    restored = another()
    restored.coordinator.recover(restore=restore)
    restored.coordinator.begin_lineage(restore.lineage)
    for done in range(1, number + 1):
        restored.coordinator.checkpoint(done, offsets(done), restored.write)
    ledger |= left
    started = another()
    started.coordinator.recover()
    assert {key[2] for key in ledger} <= {restore.lineage.id}
    asked = set()
    monkeypatch.setattr(OpenMemorySink, "subsume", lambda self, lineage, number: asked.add(lineage))
    for done in range(number + 1, 32):
        started.coordinator.checkpoint(done, offsets(done), started.write)
    assert asked == {restore.lineage.id}, "an ancestor has nothing more to collapse"


def test_a_target_that_a_lineage_never_wrote_to_is_given_no_proof_of_it(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    moved = {**targets, "facts": MemoryTarget()}
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    restored = Driver(tmp_path / "job", moved)
    restored.coordinator.recover(restore=restore)
    restored.coordinator.begin_lineage(restore.lineage)
    restored.coordinator.checkpoint(1, offsets(1), restored.write)
    assert restored.sinks["facts"].history().committed == {restore.lineage.id: 1}
