"""What the model has found in the protocol, played with the product: the shortest
traces of some mutants.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.interleaving import Crash, SteppingDriver
from harness.memory_driver import JOB, Driver, completed_of, restoring, visible
from twophase.errors import FencedError, RestoreRefusedError
from twophase.operations.savepoint.restore import load_restore
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.testing.memory import MemoryTarget

Targets = dict[str, MemoryTarget]
Patch = pytest.MonkeyPatch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def targets() -> Targets:
    return {"facts": MemoryTarget()}


def before_the_first_record_of(
    driver: SteppingDriver, patch: Patch, meanwhile: Callable[[], object]
) -> None:
    """`driver` pauses when it is about to create its first record, until `meanwhile` is over."""
    create, left = driver.stepping_storage.create, [meanwhile]

    def paused(name: str, data: bytes, *rest: object) -> None:
        if left and name.startswith("log/"):
            left.pop()()
        create(name, data, *rest)  # type: ignore[arg-type]

    patch.setattr(driver.stepping_storage, "create", paused)


def fold(driver: Driver) -> None:
    driver.context.log.fold(driver.history)


def die_before_deleting(driver: Driver) -> None:
    """The log is folded, and nothing of what came before is deleted."""

    def die(self: LocalStorage, name: str) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "delete", die)
        with pytest.raises(Crash):
            fold(driver)


def test_a_driver_that_found_an_empty_log_does_not_begin_it_again(
    folder: Path, targets: Targets, monkeypatch: Patch
) -> None:
    """CHECK_PREDECESSOR_ONLY: the first record has no predecessor that a fold
    could have deleted.
    """
    paused, other = SteppingDriver(folder, targets), Driver(folder, targets)

    def other_works() -> None:
        other.recover().run(0)
        fold(other)

    before_the_first_record_of(paused, monkeypatch, other_works)
    paused.recover()
    assert (other.coordinator.generation, paused.coordinator.generation) == (1, 2)
    assert paused.coordinator.lineage == other.coordinator.lineage


def test_what_an_interrupted_fold_has_left_behind_proves_nothing(
    folder: Path, targets: Targets, monkeypatch: Patch
) -> None:
    """CHECK_PREDECESSOR_AND_FIRST: the predecessor is still there, but the number after it
    was used and deleted.
    """
    first, paused, third = (
        Driver(folder, targets).recover(),
        SteppingDriver(folder, targets),
        Driver(folder, targets),
    )
    first.run(0)

    def others_work() -> None:
        die_before_deleting(first)
        third.recover()
        fold(third)

    before_the_first_record_of(paused, monkeypatch, others_work)
    paused.recover()
    assert paused.coordinator.generation > third.coordinator.generation
    with pytest.raises(FencedError):
        third.run(1)


def test_a_restore_sees_what_was_committed_between_its_looks_at_the_sinks_and_at_the_log(
    folder: Path, targets: Targets
) -> None:
    """RESTORE_OVERLOOKS_COMMITTED: too late for one look, and not uncommitted any
    more in the other.
    """
    old = Driver(folder, targets).recover()
    old.run(0)
    restore = restoring(completed_of(folder, 0), committed=False)
    new = SteppingDriver(folder, targets)
    new.steps.plan(1, lambda: old.run(1))  # right after the sinks were asked
    with pytest.raises(RestoreRefusedError):
        new.coordinator.recover(restore=restore)
    assert visible(targets["facts"]) == list(range(20))


def test_a_restore_from_a_copy_does_not_abort_decisions_made_there(
    tmp_path: Path, targets: Targets
) -> None:
    """RESTORE_BEHIND_DECIDED: in the job's own folder this was refused, in a copy the later
    pieces were orphans.
    """
    old = Driver(tmp_path / "job", targets).recover()
    old.run(0)
    restored = old.coordinator.newest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(old.coordinator, "_complete", lambda *rest: None)
        old.run(1)
    later = old.coordinator.newest()
    assert restored is not None
    assert later is not None
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    options = JobOptions.parse({"checkpointLocation": str(tmp_path / "new")}, "job")
    new, states = LocalStorage(tmp_path / "new"), OperatorStates([], {})
    with pytest.raises(
        RestoreRefusedError, match=f"restore from {tmp_path / 'copy' / later.folder}"
    ):
        load_restore(JOB, str(tmp_path / "copy" / restored.folder), new, states, options)
