"""The coordinator when disks fail, sinks are down, jobs stop in the middle, and
checkpoints are restored.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver, completed_of, restoring, visible
from harness.memory_driver import decided as dies_decided
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.recovery.plan import StartPlan
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.coordinator.recovery.recovery_steps import commit_in_order, take_over
from twophase.errors import (
    CheckpointMissingError,
    DeclinedError,
    FencedError,
    InDoubtError,
    OffsetMismatchError,
    RestoreRefusedError,
)
from twophase.events import (
    CheckpointCommitted,
    CheckpointDecided,
    CheckpointDeclined,
    CheckpointReplayed,
    CheckpointSubsumed,
    CheckpointTriggered,
    OrphansAborted,
    PieceCommitted,
    RecoveryFinished,
)
from twophase.ids import Attempt, Subtask
from twophase.options.job_options import SinkAhead
from twophase.state.checkpoints.checkpoint import OperatorStateFields
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Decision, FenceRecord
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]
Patch = pytest.MonkeyPatch


class Crash(BaseException):
    """The driver dies here."""


class Down(OpenMemorySink):
    """A target that answers commits only while it is up."""

    up = True

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return super().commit(requests) if self.up else [RetryLater("down") for _ in requests]


class Listener:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        self.heard.append(("complete", checkpoint))

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        self.heard.append(("aborted", checkpoint))

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        self.heard.append(("subsumed", checkpoint))


def die(*_: object) -> None:
    raise Crash


def dies_after_deciding(driver: Driver, number: int) -> None:
    driver.coordinator._complete = die  # type: ignore[method-assign, assignment]
    with pytest.raises(Crash):
        driver.run(number)


def decided(folder: Path) -> list[int]:
    return [found.checkpoint for found in JobLog(LocalStorage(folder), JOB).read().decisions]


# -- disks that fail at the decision (hazard H21) --------------------------------------------------


def nothing_was_touched_and_recovery_commits(targets: Targets, another: Another) -> None:
    assert visible(targets["facts"]) == list(range(10))
    assert len(targets["facts"].prepared) == len(targets["lake"].prepared) == 2
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))


def test_i2_an_error_in_reading_the_log_after_the_decision_is_durable_aborts_nothing(
    driver: Driver, targets: Targets, another: Another, monkeypatch: Patch
) -> None:
    driver.run(0)
    read = LocalStorage.read

    def fail(self: LocalStorage, name: str) -> bytes:
        if name.startswith("log/"):
            raise OSError(24, "Too many open files")
        return read(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "read", fail)
        with pytest.raises(InDoubtError):
            driver.run(1)
    nothing_was_touched_and_recovery_commits(targets, another)


def test_i2_a_file_system_that_goes_read_only_after_the_decision_was_linked_aborts_nothing(
    driver: Driver, targets: Targets, another: Another, tmp_path: Path, monkeypatch: Patch
) -> None:
    """ext4 with errors=remount-ro: the folder's fsync fails with EIO, dropping the
    temporary name with EROFS.
    """
    driver.run(0)
    fsync, unlink = os.fsync, os.unlink
    log = tmp_path / "job" / "log"

    def fail_fsync(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), log.stat()):
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    def fail_unlink(path: Any, **rest: Any) -> None:
        if Path(path).parent == log:
            raise OSError(30, "Read-only file system")
        unlink(path, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_fsync)
        patch.setattr(os, "unlink", fail_unlink)
        with pytest.raises(InDoubtError):
            driver.run(1)
    nothing_was_touched_and_recovery_commits(targets, another)


def test_i3_a_state_that_is_not_json_declines_the_attempt(driver: Driver, targets: Targets) -> None:
    driver.coordinator._snapshot = lambda number, frozen: {"functions": {"mine": float("nan")}}
    with pytest.raises(DeclinedError, match="is not JSON"):
        driver.run(0)
    assert targets["facts"].prepared == targets["lake"].prepared == {}
    assert [event.reason for event in driver.of(CheckpointDeclined)] == [
        "CHECKPOINT_ASYNC_EXCEPTION"
    ]


def test_i3_a_state_that_cannot_be_taken_declines_the_attempt_before_anything_is_written(
    driver: Driver,
) -> None:
    def snapshot(number: int, frozen: object) -> OperatorStateFields:
        raise KeyError("mine")

    def write(pending: PendingCheckpoint) -> None:
        pytest.fail("a sink was asked to write")

    driver.coordinator._snapshot = snapshot
    with pytest.raises(DeclinedError, match="operator state could not be snapshotted: \"'mine'\""):
        driver.run(0, write)


def test_a_sink_that_does_not_acknowledge_declines_the_attempt_by_name(driver: Driver) -> None:
    def acknowledge_one(pending: PendingCheckpoint) -> None:
        pending.acknowledge("facts", [])

    with pytest.raises(DeclinedError, match="Checkpoint 0 was not acknowledged by lake"):
        driver.run(0, acknowledge_one)


# -- a stop while a commit is outstanding ----------------------------------------------------------


@pytest.fixture
def down(targets: Targets) -> Down:
    return Down(targets["facts"], JOB, "facts")


@pytest.fixture
def stopping(another: Another, down: Down) -> Driver:
    """Checkpoint 0 is decided; sink 'facts' is down; the job is being stopped."""
    driver = another(sinks={"facts": down}).recover()
    down.up = False
    driver.context.stopping.set()
    driver.run(0)
    return driver


def test_a_decided_checkpoint_counts_as_done_for_spark_although_its_commit_waits(
    stopping: Driver, targets: Targets
) -> None:
    assert decided(stopping.folder) == [0]
    assert visible(targets["facts"]) == []
    assert stopping.of(CheckpointCommitted) == []


def test_i2_no_checkpoint_begins_before_the_one_that_waits_is_committed(
    stopping: Driver, targets: Targets
) -> None:
    with pytest.raises(
        DeclinedError,
        match="checkpoint 1 did not begin: checkpoint 0 is decided but not committed yet",
    ):
        stopping.run(1)
    assert decided(stopping.folder) == [0]
    assert len(targets["facts"].prepared) == 2


def test_i4_the_checkpoint_that_waits_is_committed_before_the_next_begins(
    stopping: Driver, down: Down, targets: Targets
) -> None:
    down.up = True
    stopping.run(1)
    assert [row["id"] // 10 for row in targets["facts"].visible] == [0] * 10 + [1] * 10


def test_i2_the_scan_for_losers_spares_pieces_of_an_older_checkpoint_that_waits(
    stopping: Driver, down: Down, targets: Targets, another: Another
) -> None:
    down.up = True
    stopping.context.completer.abort_superseded_attempts(
        Attempt(stopping.coordinator.generation, 9)
    )
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))


def test_i2_the_scan_after_a_decline_spares_pieces_of_an_older_checkpoint_that_waits(
    stopping: Driver, targets: Targets
) -> None:
    stopping.coordinator._make_room = lambda number: None  # type: ignore[method-assign]

    def fail(pending: PendingCheckpoint) -> None:
        stopping.write(pending)
        raise DeclinedError("no")

    with pytest.raises(DeclinedError):
        stopping.run(1, fail)
    assert {key[3] for key in targets["facts"].prepared} == {0}


def test_a_job_that_stops_in_recovery_touches_nothing_that_waits(
    stopping: Driver, another: Another, targets: Targets
) -> None:
    second = another(sinks={"facts": stopping.sinks["facts"]})
    second.context.stopping.set()
    second.recover()
    assert len(targets["facts"].prepared) == 2
    assert second.of(RecoveryFinished) == []


def test_a_start_commits_decided_checkpoints_then_aborts_the_others_then_begins_a_new_one(
    driver: Driver, another: Another, targets: Targets
) -> None:
    driver.run(0)
    dies_decided(driver, 1)
    transaction = next(iter(targets["facts"].prepared.values()))[0].transaction
    driver.sinks["facts"].write_direct(
        replace(transaction, checkpoint=2), Subtask(0, 900), [{"id": 99}]
    )
    second = another().recover()
    second.run(2)
    steps = (OrphansAborted, RecoveryFinished, CheckpointTriggered)
    reported = [
        type(event) for event in second.events if isinstance(event, (PieceCommitted, *steps))
    ]
    assert reported == [*[PieceCommitted] * 4, *steps, *[PieceCommitted] * 4]
    assert visible(targets["facts"]) == list(range(30))


def test_i4_a_checkpoint_that_cannot_be_committed_holds_all_after_it() -> None:
    decisions = tuple(
        Decision("a", number, Attempt(1, number), "hash", "digest") for number in range(4)
    )
    tried: list[int] = []

    def commit(decision: Decision) -> bool:
        tried.append(decision.checkpoint)
        return decision.checkpoint != 1

    assert commit_in_order(decisions, commit) == 1
    assert tried == [0, 1]


# -- recovery --------------------------------------------------------------------------------------


def test_a_recovery_commits_what_its_plan_says(
    driver: Driver, another: Another, monkeypatch: Patch
) -> None:
    driver.run(0)
    dies_decided(driver, 1)
    plan = StartPlanner.plan

    def nothing_to_commit(planner: StartPlanner, *arguments: Any) -> StartPlan:
        return replace(plan(planner, *arguments), commits=())

    with monkeypatch.context() as patch:
        patch.setattr(StartPlanner, "plan", nothing_to_commit)
        idle = another()
        idle.coordinator.recover(None)
        assert [one.checkpoint for one in idle.coordinator.history.uncommitted()] == [1]
    assert not another().recover().coordinator.history.uncommitted()


def test_a_recovery_that_fails_half_way_is_not_taken_for_a_rival_by_the_next(
    driver: Driver, another: Another, monkeypatch: Patch
) -> None:
    def fail(self: OpenMemorySink) -> Any:
        raise ConnectionError("gone")

    second = another()
    with monkeypatch.context() as patch:
        patch.setattr(OpenMemorySink, "in_doubt", fail)
        with pytest.raises(ConnectionError):
            second.coordinator.recover(previous_generation=1)
    assert second.coordinator.generation == 2
    third = another().coordinator
    third.recover(previous_generation=second.coordinator.generation)
    assert third.generation == 3


def test_before_recovery_a_driver_has_no_generation_and_no_lineage(another: Another) -> None:
    found = another().coordinator
    assert found.generation == 0
    with pytest.raises(CheckpointMissingError, match="Job 'orders' has no lineage yet"):
        _ = found.lineage


def test_a_driver_takes_over_although_another_fences_at_the_same_time(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "job")
    rival, left = JobLog(storage, JOB), [3]

    def check(history: History) -> None:
        if left[0]:
            left[0] -= 1
            rival.read()
            rival.append(FenceRecord(rival.history.generation + 1))

    assert take_over(JobLog(storage, JOB), {}, check) == 4


def test_drivers_that_keep_taking_the_job_from_each_other_stop(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "job")
    rival = JobLog(storage, JOB)

    def check(history: History) -> None:
        rival.read()
        rival.append(FenceRecord(rival.history.generation + 1))

    with pytest.raises(
        FencedError, match=r"took the job over 20 times.*Next: start one driver only"
    ):
        take_over(JobLog(storage, JOB), {}, check)
    generation = rival.read().generation
    assert take_over(JobLog(storage, JOB), {}, lambda _: None) == generation + 1, "it is alone"


def test_h17_a_clock_that_jumps_decides_nothing(
    another: Another, targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back by an hour, on by a year: generations, order and what is committed come
    from the log alone.
    """
    hour_ms, year_ms = 3_600_000, 365 * 24 * 3_600_000
    for number, now_ms in enumerate((year_ms, year_ms - hour_ms, 2 * year_ms, 0)):
        driver = another()
        monkeypatch.setattr(driver.clock, "unix_ms", lambda now_ms=now_ms: now_ms)
        driver.recover().run(number)
        assert driver.coordinator.generation == number + 1
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(40))


def test_h16_of_two_drivers_started_at_once_the_second_to_fence_has_the_job(
    driver: Driver, another: Another
) -> None:
    first, second = another(), another()
    first.recover()
    second.recover()
    second.run(0)
    with pytest.raises((FencedError, OffsetMismatchError)):
        first.run(0)
    with pytest.raises(FencedError):
        driver.run(0)


# -- restore ---------------------------------------------------------------------------------------


def test_h30_restoring_a_checkpoint_that_is_not_committed_yet_commits_it_before_orphans_are_aborted(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    dies_after_deciding(driver, 1)
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    restored = completed_of(tmp_path / "copy", 1)
    new = Driver(tmp_path / "new", targets)
    new.coordinator.recover(restore=restoring(restored, committed=False))
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))
    assert targets["facts"].prepared == {}
    assert [event.recommitted for event in new.of(RecoveryFinished)] == [1]


def test_h30_a_restore_that_is_stopped_before_its_commit_is_done_aborts_nothing(
    driver: Driver, targets: Targets, down: Down, tmp_path: Path
) -> None:
    dies_after_deciding(driver, 0)
    restored = completed_of(tmp_path / "job", 0)
    new = Driver(tmp_path / "new", targets, sinks={"facts": down})
    down.up = False
    new.context.stopping.set()
    new.coordinator.recover(restore=restoring(restored, committed=False))
    assert len(targets["facts"].prepared) == 2
    again = Driver(tmp_path / "new", targets)
    again.coordinator.recover(restore=restoring(restored, committed=False))
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))


def test_h28_restoring_from_before_what_a_sink_has_committed_is_refused(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    restored = completed_of(tmp_path / "job", 0)
    driver.run(1)
    new = Driver(tmp_path / "new", targets)
    with pytest.raises(
        RestoreRefusedError,
        match=r"has committed checkpoint 1 of lineage .*, the restore knows 0 of it",
    ):
        new.coordinator.recover(restore=restoring(restored, committed=False))
    assert decided(tmp_path / "new") == []
    rewinding = replace(restoring(restored, committed=True), sink_ahead=SinkAhead.REWIND)
    rewound = Driver(tmp_path / "new", targets)
    rewound.coordinator.recover(restore=rewinding)
    rewound.coordinator.begin_lineage(rewinding.lineage)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))


def test_h28_restoring_from_before_what_an_old_driver_over_another_folder_commits_meanwhile_is_refused(  # noqa: E501
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    class Overtaken(OpenMemorySink):
        asked = False

        def in_doubt(self) -> Sequence[Committable]:
            if not self.asked:
                self.asked = True
                driver.run(1)
            return super().in_doubt()

    driver.run(0)
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    new = Driver(
        tmp_path / "new", targets, sinks={"facts": Overtaken(targets["facts"], JOB, "facts")}
    )
    with pytest.raises(RestoreRefusedError, match=r"has committed checkpoint 1 of lineage"):
        new.coordinator.recover(restore=restore)
    assert visible(targets["facts"]) == list(range(20))


def test_h28_restoring_past_a_decided_uncommitted_checkpoint_is_refused(
    driver: Driver, targets: Targets, another: Another, tmp_path: Path
) -> None:
    driver.run(0)
    restored = completed_of(tmp_path / "job", 0)
    dies_after_deciding(driver, 1)
    with pytest.raises(
        RestoreRefusedError,
        match=r"checkpoint 1 of lineage .* is decided and must still be committed",
    ):
        another().coordinator.recover(restore=restoring(restored, committed=False))
    assert len(targets["facts"].prepared) == 2
    assert JobLog(LocalStorage(tmp_path / "job"), JOB).read().generation == 1
    another().recover().run(2)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


# -- micro-batches ---------------------------------------------------------------------------------


def test_hd6_a_checkpoint_without_rows_is_decided_and_committed_like_any_other(
    driver: Driver, targets: Targets, another: Another
) -> None:
    def acknowledge_nothing(pending: PendingCheckpoint) -> None:
        for sink in driver.sinks:
            pending.acknowledge(sink, [])

    driver.run(0, acknowledge_nothing)
    driver.run(1)
    assert visible(targets["facts"]) == list(range(10, 20))
    newest = another().recover().coordinator.newest()
    assert newest is not None
    assert (newest.checkpoint, newest.committed) == (1, True)


def test_h42_a_decided_batch_of_a_stateful_plan_is_executed_after_its_commit(
    driver: Driver, targets: Targets, another: Another
) -> None:
    dies_after_deciding(driver, 0)
    second = another().recover()
    newest = second.coordinator.newest()
    assert newest is not None
    seen: list[int] = []
    second.coordinator.replay(newest, lambda: seen.append(len(visible(targets["facts"]))))
    assert seen == [10]
    assert second.of(CheckpointReplayed) == [CheckpointReplayed(JOB, 0, True)]


def test_the_pause_between_checkpoints_is_kept_from_the_last_commit(another: Another) -> None:
    driver = another(options={"checkpoint.min_pause": "10 s"}).recover()
    driver.run(0)
    assert driver.clock.waits == []
    driver.clock.now_s += 4
    driver.run(1)
    assert driver.clock.waits == pytest.approx([6.0])


def test_listeners_hear_of_every_checkpoint_once_and_in_order(another: Another) -> None:
    listener = Listener()
    driver = another(listeners=[listener], options={"checkpoint.tolerable_failures": 1}).recover()
    tries: list[int] = []

    def fail_once(pending: PendingCheckpoint) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise DeclinedError("no")
        driver.write(pending)

    driver.run(0, fail_once)
    for number in (1, 2):
        driver.run(number)
    assert listener.heard == [
        ("aborted", 0),
        ("complete", 0),
        ("complete", 1),
        ("subsumed", 0),
        ("complete", 2),
        ("subsumed", 1),
    ]
    assert [event.checkpoint for event in driver.of(CheckpointSubsumed)] == [0, 1]


def test_a_declined_attempt_leaves_no_body(
    another: Another, tmp_path: Path, monkeypatch: Patch
) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 1}).recover()
    create, failed = LocalStorage.create, list[str]()

    def full_once(self: LocalStorage, name: str, data: bytes, *rest: Any) -> None:
        if name.startswith("log/") and not failed:
            failed.append(name)
            raise OSError(28, "No space left on device")
        create(self, name, data, *rest)

    monkeypatch.setattr(LocalStorage, "create", full_once)
    driver.run(0)
    assert [path.name.rsplit("-", 1)[1] for path in (tmp_path / "job" / "chk").iterdir()] == ["1.2"]


def test_events_tell_the_rows_of_every_sink(driver: Driver) -> None:
    def write_nothing(pending: PendingCheckpoint) -> None:
        for sink in driver.sinks:
            pending.acknowledge(sink, [])

    driver.run(0)
    driver.run(1, write_nothing)
    for kind in (CheckpointDecided, CheckpointCommitted):
        reported = [(event.rows, event.rows_by_sink) for event in driver.of(kind)]
        assert reported == [(20, {"facts": 10, "lake": 10}), (0, {"facts": 0, "lake": 0})]
