"""The checkpoints of a job that has ended are given up: all of them are committed, nothing is left
in a sink, and no start goes on from them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    completed_of,
    decided,
    dying,
    frozen,
    offsets,
    restoring,
    visible,
)
from twophase.coordinator.adopt import AdoptionRepair
from twophase.coordinator.pending import PendingCheckpoint
from twophase.coordinator.release import release_checkpoints
from twophase.errors import CheckpointMissingError, FencedError, RestoreRefusedError
from twophase.events import CheckpointsReleased
from twophase.state.entries import FenceRecord, Released
from twophase.state.history import History
from twophase.state.log import JobLog
from twophase.state.storage import LocalStorage
from twophase.testing.memory import MemoryTarget

Another = Callable[..., Driver]
Targets = dict[str, MemoryTarget]


def release(driver: Driver) -> bool:
    coordinator = driver.coordinator
    return release_checkpoints(coordinator.context, coordinator.attempts, coordinator.closer)


def history(folder: Path) -> History:
    return JobLog(LocalStorage(folder), JOB).read()


def acknowledge_nothing(driver: Driver) -> Callable[[PendingCheckpoint], None]:
    def pre_commit(pending: PendingCheckpoint) -> None:
        for name in driver.sinks:
            pending.acknowledge(name, [])

    return pre_commit


def bodies(folder: Path) -> list[str]:
    return [path.name for path in (folder / "chk").iterdir()]


def test_the_bodies_go_and_the_log_tells_what_was_given_up(driver: Driver, folder: Path) -> None:
    driver.run(0)
    driver.run(1)
    assert release(driver)
    assert bodies(folder) == []
    found = history(folder)
    assert found.decisions == ()
    assert found.released == Released(driver.coordinator.lineage.id, 1, 0)
    assert [event.checkpoint for event in driver.of(CheckpointsReleased)] == [1]


def test_i6_a_start_after_it_is_refused_by_name_and_writes_nothing(
    driver: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    driver.run(0)
    release(driver)
    before = sorted((folder / "log").iterdir())
    with pytest.raises(CheckpointMissingError, match="up to 0, were deleted when it ended"):
        another().recover()
    assert sorted((folder / "log").iterdir()) == before
    assert visible(targets["facts"]) == list(range(10))


def test_without_a_checkpoint_there_is_nothing_to_release(
    driver: Driver, another: Another, folder: Path
) -> None:
    assert not release(driver)
    assert history(folder).released is None
    another().recover().run(0)


def test_i2_a_checkpoint_that_is_not_committed_keeps_all_of_them(
    driver: Driver, another: Another, targets: Targets
) -> None:
    driver.run(0)
    decided(driver, 1)
    assert not release(driver)
    another().recover()
    assert visible(targets["facts"]) == list(range(20))


def test_i3_nothing_undecided_is_left_in_a_sink(driver: Driver, targets: Targets) -> None:
    driver.run(0)
    driver.dies_undecided(1)
    assert targets["facts"].prepared
    assert release(driver)
    assert targets["facts"].prepared == targets["lake"].prepared == {}
    assert visible(targets["facts"]) == list(range(10))


def test_a_sink_that_cannot_be_cleaned_keeps_the_checkpoints(
    driver: Driver, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run(0)

    def unreachable() -> None:
        raise ConnectionError("down")

    with monkeypatch.context() as patch:
        patch.setattr(driver.sinks["lake"], "in_doubt", unreachable)
        with pytest.raises(ConnectionError):
            release(driver)
    another().recover().run(1)


def test_i7_a_driver_that_was_overtaken_releases_nothing(
    driver: Driver, folder: Path, another: Another
) -> None:
    driver.run(0)
    other = JobLog(LocalStorage(folder), JOB)
    other.append(FenceRecord(other.read().generation + 1))
    with pytest.raises(FencedError):
        release(driver)
    assert len(bodies(folder)) == 1
    another().recover().run(1)


@pytest.mark.parametrize("point", ["G01", "G02", "C17"])
def test_a_death_at_any_step_leaves_the_job_as_it_was_or_ended(
    driver: Driver, another: Another, targets: Targets, point: str
) -> None:
    driver.run(0)
    dying(point, lambda: release(driver))
    if point == "G01":
        another().recover().run(1)
        assert visible(targets["facts"]) == list(range(20))
    else:
        with pytest.raises(CheckpointMissingError, match="were deleted"):
            another().recover()


def test_a_restore_from_a_copy_goes_on_and_sweeps_what_a_death_has_left(
    driver: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    driver.run(0)
    restore = restoring(completed_of(folder, 0), committed=True)
    dying("G02", lambda: release(driver))
    assert len(bodies(folder)) == 1
    next_one = another()
    next_one.coordinator.recover(restore=restore)
    next_one.coordinator.begin_lineage(restore.lineage)
    assert bodies(folder) == []
    assert history(folder).released is None
    next_one.coordinator.checkpoint(1, offsets(1), next_one.write)
    assert visible(targets["facts"]) == list(range(20))


def test_a_restore_behind_what_was_released_is_refused_even_if_no_sink_had_rows(
    driver: Driver, another: Another, folder: Path
) -> None:
    driver.run(0)
    restore = restoring(completed_of(folder, 0), committed=True)
    driver.coordinator.checkpoint(1, offsets(1), acknowledge_nothing(driver))
    release(driver)
    with pytest.raises(RestoreRefusedError, match=r"checkpoint 1 of lineage .* deleted when the"):
        another().coordinator.recover(restore=restore)


def test_the_targets_can_be_adopted_instead(
    driver: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    driver.run(0)
    release(driver)
    repair = AdoptionRepair(another().coordinator.context, frozen)
    repair.adopt(repair.plan(), NOTE)
    assert history(folder).released is None
    assert another().recover().coordinator.lineage.ancestors != {}
    assert visible(targets["facts"]) == list(range(10))


def test_a_checkpoint_that_is_being_committed_behind_is_no_obstacle_once_it_is_done(
    another: Another, folder: Path
) -> None:
    driver = another(options={"checkpoint.max_concurrent": 2}).recover()
    driver.run(0)
    driver.run(1)
    driver.coordinator.close(retry=True)
    assert release(driver)
    assert bodies(folder) == []
