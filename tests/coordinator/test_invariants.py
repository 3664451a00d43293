"""The invariants of the protocol, each by its number, on the real coordinator, log and store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver, completed_of, offsets, restoring, visible
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.coordinator.attempt import CheckpointAttempt
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import Replay
from twophase.coordinator.resumable import ResumableCoordinator
from twophase.errors import (
    CheckpointMissingError,
    CorruptRecordError,
    DeclinedError,
    FencedError,
    InDoubtError,
    LostCommittableError,
    OffsetMismatchError,
    TargetChangedError,
)
from twophase.events import CheckpointDeclined, CommitRetried, OrphansAborted
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.files.storage import LocalStorage, UnclearOutcomeError
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]


class Crash(BaseException):
    """The driver dies here: no handler of the product may see it as a failure to clean up after."""


def crash_at(driver: Driver, monkeypatch: pytest.MonkeyPatch, where: str, number: int) -> None:
    """Run checkpoint `number` and die when `where`, a method of the coordinator or of an
    attempt, is entered.
    """

    def die(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(
            CheckpointAttempt if hasattr(CheckpointAttempt, where) else driver.coordinator,
            where,
            die,
        )
        with pytest.raises(Crash):
            driver.run(number)


def test_checkpoints_commit_in_every_sink(driver: Driver, targets: Targets) -> None:
    for number in range(3):
        driver.run(number)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


def test_i1_nothing_is_visible_before_the_decision(
    driver: Driver, targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at(driver, monkeypatch, "_decide", 0)
    assert visible(targets["facts"]) == visible(targets["lake"]) == []
    assert len(targets["facts"].prepared) == 2


def test_i2_after_the_decision_recovery_commits(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at(driver, monkeypatch, "_complete", 0)
    assert visible(targets["facts"]) == []
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))


def test_i2_a_commit_is_retried_until_it_is_done_and_the_other_sink_is_not_held_up(
    tmp_path: Path, targets: Targets
) -> None:
    class DownTwice(OpenMemorySink):
        tries = 0

        def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
            self.tries += 1
            if self.tries == 1:
                assert visible(targets["lake"]) == []
                return [RetryLater("read only") for _ in requests]
            if self.tries == 2:
                assert visible(targets["lake"]) == list(range(10))
                raise ConnectionError("gone")
            return super().commit(requests)

    driver = Driver(
        tmp_path / "job", targets, sinks={"facts": DownTwice(targets["facts"], JOB, "facts")}
    ).recover()
    driver.run(0)
    assert visible(targets["facts"]) == list(range(10))
    assert [event.reason for event in driver.of(CommitRetried)] == [
        "read only",
        "ConnectionError: 'gone'",
    ]
    assert driver.clock.waits == [0.1, 0.2]


def test_i3_without_a_decision_everything_is_aborted_by_recovery(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at(driver, monkeypatch, "_decide", 0)
    second = another().recover()
    assert targets["facts"].prepared == targets["lake"].prepared == {}
    assert len(second.of(OrphansAborted)) == 2
    second.run(0)
    assert visible(targets["facts"]) == list(range(10))


def test_i3_a_declined_attempt_is_aborted_in_every_sink_and_retried_whole(
    another: Another, targets: Targets
) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 1}).recover()
    tried: list[Attempt] = []

    def fail_once(pending: PendingCheckpoint) -> None:
        tried.append(pending.attempt)
        driver.write(pending)
        if len(tried) == 1:
            raise DeclinedError("a sink refused")

    driver.run(0, fail_once)
    assert tried == [Attempt(1, 1), Attempt(1, 2)]
    assert visible(targets["facts"]) == list(range(10))
    assert targets["facts"].prepared == {}
    assert [event.will_retry for event in driver.of(CheckpointDeclined)] == [True]


def test_i3_an_attempt_that_is_not_tolerated_raises_and_leaves_nothing(
    driver: Driver, targets: Targets
) -> None:
    def fail(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        raise DeclinedError("a sink refused")

    with pytest.raises(DeclinedError, match="a sink refused"):
        driver.run(0, fail)
    assert targets["facts"].prepared == targets["lake"].prepared == {}


def test_i4_commit_again_is_recognised_by_proof(
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    second = another().recover()
    found = second.coordinator.classify(0, offsets(0))
    assert isinstance(found, Replay)
    second.coordinator.replay(found.decision, None)
    assert visible(targets["facts"]) == list(range(10))


def test_i4_a_piece_that_vanished_after_the_decision_stops_the_job(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at(driver, monkeypatch, "_complete", 0)
    targets["facts"].prepared.popitem()
    with pytest.raises(LostCommittableError, match="5 rows are lost"):
        another().recover()


def test_i5_every_attempt_has_its_own_identity(another: Another) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 2}).recover()
    seen: list[str] = []

    def fail_twice(pending: PendingCheckpoint) -> None:
        seen.append(str(pending.transaction("facts")))
        if len(seen) < 3:
            raise DeclinedError("no")
        driver.write(pending)

    driver.run(0, fail_twice)
    assert len(set(seen)) == 3
    rival = another().recover()

    def note(pending: PendingCheckpoint) -> None:
        seen.append(str(pending.transaction("facts")))
        rival.write(pending)

    rival.run(1, note)
    assert len(set(seen)) == 4


def test_i6_an_empty_store_with_a_sink_that_has_history_stops(
    driver: Driver, another: Another, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    (tmp_path / "job").rename(tmp_path / "newest")
    with pytest.raises(
        CheckpointMissingError, match="is empty, but sink 'facts' has rows of lineage"
    ):
        another().recover()
    assert visible(targets["facts"]) == list(range(10))
    shutil.rmtree(tmp_path / "job")
    (tmp_path / "newest").rename(tmp_path / "job")
    another().recover().run(1)
    assert visible(targets["facts"]) == list(range(20))


def test_i6_an_old_copy_of_the_store_of_an_older_generation_stops(
    driver: Driver, another: Another, tmp_path: Path
) -> None:
    driver.run(0)
    shutil.copytree(tmp_path / "job", tmp_path / "old")
    another().recover().run(1)
    shutil.rmtree(tmp_path / "job")
    (tmp_path / "old").rename(tmp_path / "job")
    with pytest.raises(
        CheckpointMissingError, match="committed checkpoint 1, but the checkpoint store ends at 0"
    ):
        another().recover()


def test_i6_an_old_copy_of_the_store_of_the_same_generation_stops(
    driver: Driver, another: Another, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    shutil.copytree(tmp_path / "job", tmp_path / "old")
    driver.run(1)
    (tmp_path / "job").rename(tmp_path / "replaced")
    (tmp_path / "old").rename(tmp_path / "job")
    with pytest.raises(
        CheckpointMissingError,
        match="has committed checkpoint 1, but the checkpoint store ends at 0",
    ) as caught:
        another().recover()
    assert "was restored from a backup, restore the one that it replaced" in caught.value.remedy
    shutil.rmtree(tmp_path / "job")
    (tmp_path / "replaced").rename(tmp_path / "job")
    another().recover().run(2)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


def test_i6_a_store_that_continues_a_lineage_of_another_folder_knows_it(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    moved = Driver(tmp_path / "moved", targets)
    moved.coordinator.recover(restore=restore)
    moved.coordinator.begin_lineage(restore.lineage)
    moved.run(1)
    Driver(tmp_path / "moved", targets).recover().run(2)
    assert visible(targets["facts"]) == list(range(30))


def test_i6_a_lineage_that_went_on_elsewhere_stops_the_store_that_continued_it(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    driver.run(0)
    restore = restoring(completed_of(tmp_path / "job", 0), committed=True)
    moved = Driver(tmp_path / "moved", targets)
    moved.coordinator.recover(restore=restore)
    moved.coordinator.begin_lineage(restore.lineage)
    for target in targets.values():
        target.high_water[
            JOB, "facts" if target is targets["facts"] else "lake", driver.coordinator.lineage.id
        ] = 1
        target.fences = dict.fromkeys(target.fences, Attempt(9, 0))
    with pytest.raises(
        CheckpointMissingError,
        match=r"has committed checkpoint 1 of lineage .* this job continues from 0",
    ):
        Driver(tmp_path / "moved", targets).recover()


def test_i7_a_driver_that_was_overtaken_cannot_decide(
    driver: Driver, another: Another, targets: Targets
) -> None:
    driver.run(0)

    def overtaken(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        another().recover().run(1)

    with pytest.raises(FencedError):
        driver.run(1, overtaken)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))
    assert targets["facts"].prepared == {}


def test_i7_an_older_driver_raises_no_fence_and_the_newer_one_goes_on(
    driver: Driver, another: Another, targets: Targets
) -> None:
    newer = another().recover()
    with pytest.raises(FencedError, match=r"is at 2\.\d, this driver at 1\.9") as caught:
        driver.sinks["facts"].fence(Attempt(1, 9))
    assert caught.value.remedy.startswith("let the newer driver go on")
    newer.run(0)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))


def test_i7_late_tasks_of_a_fenced_driver_leave_nothing(
    driver: Driver, another: Another, targets: Targets
) -> None:
    sink = driver.sinks["facts"]
    late: list[TransactionId] = []

    def pause(pending: PendingCheckpoint) -> None:
        late.append(pending.transaction("facts"))
        raise Crash

    with pytest.raises(Crash):
        driver.run(0, pause)
    another().recover()
    with pytest.raises(FencedError):
        sink.write_direct(late[0], Subtask(0, 0), [{"id": 1}])
    assert targets["facts"].prepared == {}


def test_i7_a_driver_that_restarts_after_being_overtaken_stays_out(
    driver: Driver, another: Another, targets: Targets
) -> None:
    rival = another().recover()
    with pytest.raises(FencedError) as caught:
        another().coordinator.recover(previous_generation=1)
    assert caught.value.remedy == "leave this driver stopped."
    rival.run(0)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))


def test_i7_a_process_of_an_overtaken_driver_does_not_go_on_with_it(
    driver: Driver, another: Another, targets: Targets
) -> None:
    rival = another().recover()
    process = ResumableCoordinator(another().coordinator)
    for go_on in (lambda: process.join(Attempt(1, 1)), lambda: process.abandon(1)):
        with pytest.raises(FencedError, match="generation 2 has taken over from 1") as caught:
            go_on()
        assert caught.value.remedy == "leave this driver stopped."
    rival.run(0)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))


def test_i7_a_zombie_that_appends_after_a_folded_log_is_fenced(
    driver: Driver, another: Another
) -> None:
    driver.run(0)

    def overtaken(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        rival = another().recover()
        rival.context.log.fold(rival.history)

    with pytest.raises(FencedError, match="folded by another driver"):
        driver.run(1, overtaken)
    newest = another().recover().coordinator.newest()
    assert newest is not None
    assert newest.checkpoint == 0


def test_i7_a_driver_whose_newest_checkpoint_was_subsumed_by_another_is_told_that_it_is_fenced(
    driver: Driver, another: Another
) -> None:
    driver.run(0)
    rival = another().recover()
    rival.run(1)
    with pytest.raises(FencedError, match="written by another driver"):
        driver.run(1)


def test_i8_an_unclear_outcome_neither_commits_nor_aborts(
    tmp_path: Path, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tmp_path / "job", targets).recover()
    create = LocalStorage.create

    def lose_reply(self: LocalStorage, name: str, *rest: Any) -> None:
        create(self, name, *rest)
        if name.startswith("log/"):
            raise UnclearOutcomeError("reply lost")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", lose_reply)
        with pytest.raises(InDoubtError):
            driver.run(0)
    assert visible(targets["facts"]) == []
    assert len(targets["facts"].prepared) == 2
    another().recover()
    assert visible(targets["facts"]) == list(range(10))


def test_i8_damage_beside_a_decision_that_is_durable_neither_commits_nor_aborts_nor_fences(
    tmp_path: Path, targets: Targets, another: Another
) -> None:
    """A backup that somebody has put into the log, say: it is named, and once it is gone the
    decision is committed.
    """
    driver = Driver(tmp_path / "job", targets).recover()
    copied = tmp_path / "job" / "log" / "0000000002.bak"
    copied.touch()
    with pytest.raises(InDoubtError, match=r"'0000000002\.bak', which is not a record") as caught:
        driver.run(0)
    assert caught.value.remedy == "find out what wrote it, and remove it."
    with pytest.raises(InDoubtError):
        driver.coordinator.context.log.check_fence()
    assert visible(targets["facts"]) == []
    assert len(targets["facts"].prepared) == 2
    with pytest.raises(CorruptRecordError, match="which is not a record"):
        another().recover()
    copied.unlink()
    another().recover()
    assert visible(targets["facts"]) == list(range(10))


def test_i8_a_decision_that_was_certainly_not_written_is_aborted_and_retried(
    another: Another, targets: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 1}).recover()
    create, failed = LocalStorage.create, list[str]()

    def disk_full_once(self: LocalStorage, name: str, *rest: Any) -> None:
        if name.startswith("log/") and not failed:
            failed.append(name)
            raise OSError(28, "No space left on device")
        create(self, name, *rest)

    monkeypatch.setattr(LocalStorage, "create", disk_full_once)
    driver.run(0)
    assert visible(targets["facts"]) == list(range(10))
    assert [event.reason for event in driver.of(CheckpointDeclined)] == [
        "FINALIZE_CHECKPOINT_FAILURE"
    ]


def test_i10_committing_against_another_target_stops(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at(driver, monkeypatch, "_complete", 0)
    elsewhere = MemoryTarget()
    elsewhere.fences.update(targets["facts"].fences)
    with pytest.raises(TargetChangedError):
        another(sinks={"facts": OpenMemorySink(elsewhere, JOB, "facts")}).recover()
    assert visible(elsewhere) == []
    another().recover()
    assert visible(targets["facts"]) == list(range(10)), "with the table that it had"


@pytest.mark.parametrize(
    ("number", "frozen", "match"),
    [
        (1, replace(offsets(1), end=('{"next":99}',)), "decided with other offsets"),
        (3, offsets(3), "the newest decided checkpoint is 1"),
        (0, offsets(0), "the newest decided checkpoint is 1"),
        (2, replace(offsets(2), start=('{"next":7}',)), "does not begin where checkpoint 1 ended"),
    ],
)
def test_what_spark_replays_must_fit_the_store(
    driver: Driver, number: int, frozen: FrozenOffsets, match: str
) -> None:
    driver.run(0)
    driver.run(1)
    with pytest.raises(OffsetMismatchError, match=match):
        driver.coordinator.classify(number, frozen)


def test_h14_pieces_of_one_subtask_twice_are_refused(driver: Driver) -> None:
    def twice(pending: PendingCheckpoint) -> None:
        piece = driver.sinks["facts"].write_direct(
            pending.transaction("facts"), Subtask(0, 1), [{"id": 1}]
        )
        assert piece is not None
        pending.acknowledge("facts", [piece, piece])

    with pytest.raises(DeclinedError, match="do not belong together"):
        driver.run(0, twice)


def test_h48_all_decided_checkpoints_are_committed_oldest_first(
    driver: Driver, targets: Targets, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as commits behind the next batch do
    monkeypatch.setattr(driver.coordinator, "_make_room", lambda number: None)
    crash_at(driver, monkeypatch, "_complete", 0)
    crash_at(driver, monkeypatch, "_complete", 1)
    assert [found.checkpoint for found in driver.history.uncommitted()] == [
        0,
        1,
    ]
    another().recover()
    assert visible(targets["facts"]) == list(range(20))
    assert [row["id"] // 10 for row in targets["facts"].visible] == [0] * 10 + [1] * 10


def test_a_piece_of_a_task_attempt_that_lost_is_aborted_after_the_commit(
    driver: Driver, targets: Targets
) -> None:
    def with_loser(pending: PendingCheckpoint) -> None:
        driver.sinks["facts"].write_direct(
            pending.transaction("facts"), Subtask(0, 7), [{"id": -1}]
        )
        driver.write(pending)

    driver.run(0, with_loser)
    assert targets["facts"].prepared == {}
    assert visible(targets["facts"]) == list(range(10))


def test_the_store_stays_small_over_many_checkpoints(
    driver: Driver, targets: Targets, tmp_path: Path
) -> None:
    for number in range(100):
        driver.run(number)
    assert len(list((tmp_path / "job" / "log").iterdir())) < 40
    assert len(list((tmp_path / "job" / "chk").iterdir())) == 1
    assert visible(targets["facts"]) == list(range(1000))
    assert len(targets["facts"].ledger) <= 2 * 16


def test_a_restart_after_many_checkpoints_goes_on(
    driver: Driver, targets: Targets, another: Another
) -> None:
    for number in range(40):
        driver.run(number)
    second = another().recover()
    second.run(40)
    assert visible(targets["facts"]) == list(range(410))
    assert second.history.generation == 2
    assert second.context.job == JOB
