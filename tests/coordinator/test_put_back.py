"""A target that was put back, or is another one: it knows less than the log calls committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.coordinator.conftest import Driver, completed_of, restoring
from twophase.errors import TargetChangedError
from twophase.protocol.sink import SinkHistory
from twophase.testing.memory import MemorySink, MemoryTarget

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]


def put_back(target: MemoryTarget, old: MemoryTarget) -> None:
    """As a backup would: rows, ledger, marks and fence together."""
    target.visible, target.ledger = list(old.visible), set(old.ledger)
    target.high_water, target.fences = dict(old.high_water), dict(old.fences)


def backup(target: MemoryTarget) -> MemoryTarget:
    copy = MemoryTarget()
    put_back(copy, target)
    return copy


def test_a_target_that_was_put_back_stops_the_job(driver: Driver, targets: Targets, another: Another) -> None:
    driver.run(0)
    old = backup(targets["lake"])
    driver.run(1)
    driver.run(2)
    put_back(targets["lake"], old)
    records = len(driver.coordinator.log.history.decisions)
    again = another()
    with pytest.raises(TargetChangedError, match=r"checkpoint 2 .* sink 'lake' .* knows up to 0 of that lineage"):
        again.recover()
    assert (again.coordinator.generation, len(again.coordinator.log.history.decisions)) == (0, records)


def test_an_empty_target_in_place_of_the_old_one_stops_the_job(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    put_back(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError, match="knows none of that lineage"):
        another().recover()


def test_a_restart_of_the_same_driver_notices_it_too(driver: Driver, targets: Targets) -> None:
    driver.run(0)
    put_back(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError):
        driver.coordinator.recover(driver.coordinator.generation)


def test_a_proof_that_was_folded_is_one(driver: Driver, targets: Targets, another: Another) -> None:
    driver.run(0)
    for sink in driver.sinks.values():
        sink.subsume(driver.coordinator.lineage.id, 0)
    assert not targets["facts"].ledger
    another().recover()


def test_checkpoints_without_pieces_and_sinks_that_left_prove_nothing(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    put_back(targets["lake"], MemoryTarget())
    del targets["lake"]
    another().recover()
    driver = another().recover()
    driver.run(1, lambda pending: pending.acknowledge("facts", []))
    put_back(targets["facts"], MemoryTarget())
    another().recover()


def test_a_target_that_forgets_proofs_is_believed(driver: Driver, targets: Targets, tmp_path: Path) -> None:
    class Forgetful(MemorySink):
        def history(self) -> SinkHistory:
            return SinkHistory(super().history().generation, {}, forgets=True)

    driver.run(0)
    Driver(tmp_path / "job", targets, sinks={"lake": Forgetful(targets["lake"])}).recover()


def test_what_another_driver_commits_between_the_question_and_the_log_is_asked_for_again(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    class Overtaken(MemorySink):
        asked = False

        def history(self) -> SinkHistory:
            said = super().history()
            if not self.asked:
                self.asked = True
                driver.run(1)
            return said

    driver.run(0)
    new = Driver(tmp_path / "job", targets, sinks={"facts": Overtaken(targets["facts"])})
    new.recover()
    assert new.coordinator.generation == 2


def test_a_restore_may_go_to_another_target_and_not_to_one_that_was_put_back(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    restored = completed_of(tmp_path / "job", 0)
    elsewhere = {"facts": MemoryTarget(), "lake": targets["lake"]}
    moved = Driver(tmp_path / "moved", elsewhere)
    restore = restoring(restored, committed=True)
    moved.coordinator.recover(restore=restore)
    moved.coordinator.begin_lineage(restore.lineage)
    Driver(tmp_path / "moved", elsewhere).recover()  # nothing of the new lineage is committed yet
    put_back(targets["facts"], MemoryTarget())
    with pytest.raises(TargetChangedError):
        Driver(tmp_path / "new", targets).coordinator.recover(restore=restore)
