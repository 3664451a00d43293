"""A sink commits a checkpoint ahead of the others: each row once in each sink, whatever dies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import (
    JOB,
    NOTE,
    Driver,
    ManualClock,
    completed_of,
    dying,
    frozen,
    lose,
    offsets,
    restoring,
    visible,
)
from tests.coordinator.recovery.test_restored_target import backup, restore_target
from tests.operations.repair.test_accept_loss import repair as accept_loss
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.recovery.plan import Restore
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    DeclinedError,
    FencedError,
    InDoubtError,
    LostCommittableError,
    OffsetMismatchError,
    RestoreRefusedError,
    StopJobError,
)
from twophase.events import (
    CheckpointDecided,
    CommitRetried,
    Observers,
    OrphansAborted,
    SinkDecided,
)
from twophase.ids import TransactionId
from twophase.operations.repair.adopt import AdoptionRepair
from twophase.operations.repair.rewrite import Lost, RewriteRepair
from twophase.operations.savepoint.restore import restore_of_checkpoint
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.files.storage import LocalStorage, UnclearOutcomeError
from twophase.state.journal.entries import FenceRecord
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink

Another = Callable[..., Driver]
Targets = dict[str, MemoryTarget]
AHEAD = {"checkpoint.mode": "at_least_once", "checkpoint.num_retained": 9}
POINTS = pytest.mark.parametrize("point", ["A01", "A02"])


@pytest.fixture
def driver(another: Another) -> Driver:
    """Checkpoint 0 is committed. `facts` acknowledges first, `lake` last."""
    driver = another(options=AHEAD).recover()
    driver.run(0)
    return driver


def history(folder: Path) -> History:
    return JobLog(LocalStorage(folder), JOB).read()


def ahead(folder: Path) -> list[tuple[str, int]]:
    return [(one.sink, one.checkpoint) for one in history(folder).sink_decisions]


def whole(targets: Targets, checkpoints: int) -> None:
    """Check that each sink has each row once, and waits for nothing."""
    for target in targets.values():
        assert visible(target) == [*range(10 * checkpoints)]
        assert not target.prepared


def failing_last(driver: Driver, error: BaseException) -> Callable[[PendingCheckpoint], None]:
    """Let all sinks but the last write, once; then all that are asked."""
    errors = [error]

    def write(pending: PendingCheckpoint) -> None:
        if not errors:
            return driver.write(pending)
        sinks = dict(driver.sinks)
        last = driver.sinks.pop([*sinks][-1])
        try:
            asked = [name for name in pending.missing() if name in driver.sinks]
            _write_some(driver, pending, asked)
        finally:
            driver.sinks.clear()
            driver.sinks.update(sinks)
            assert last is [*sinks.values()][-1]
        raise errors.pop()

    return write


def _write_some(driver: Driver, pending: PendingCheckpoint, names: Sequence[str]) -> None:
    missing = pending.missing
    pending.missing = lambda: [*names]  # type: ignore[method-assign]
    driver.write(pending)
    pending.missing = missing  # type: ignore[method-assign]


def die_ahead(driver: Driver, point: str, number: int = 1) -> None:
    dying(point, lambda: driver.run(number))


def test_its_rows_are_visible_before_the_last_sink_has_acknowledged(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    seen = []

    def write(pending: PendingCheckpoint) -> None:
        _write_some(driver, pending, ["facts"])
        seen.append((visible(targets["facts"]), visible(targets["lake"]), ahead(folder)))
        driver.write(pending)

    driver.run(1, write)
    assert seen == [([*range(20)], [*range(10)], [("facts", 1)])]
    whole(targets, 2)
    assert ahead(folder) == []


def test_exactly_once_decides_no_sink_alone(another: Another, targets: Targets) -> None:
    driver = another().recover()
    driver.run(0)
    assert not driver.of(SinkDecided)
    whole(targets, 1)


def test_the_last_sink_has_no_record_of_its_own(driver: Driver) -> None:
    driver.run(1)
    assert [(one.sink, one.checkpoint, one.rows) for one in driver.of(SinkDecided)] == [
        ("facts", 0, 10),
        ("facts", 1, 10),
    ]


def test_one_sink_alone_is_as_with_exactly_once(tmp_path: Path) -> None:
    target = MemoryTarget()
    driver = Driver(tmp_path / "job", {"facts": target}, AHEAD).recover()
    driver.run(0)
    assert not driver.of(SinkDecided)
    assert visible(target) == [*range(10)]


def test_a_sink_without_rows_has_no_record(driver: Driver, targets: Targets) -> None:
    def write(pending: PendingCheckpoint) -> None:
        pending.acknowledge("facts", [])
        driver.write(pending)

    driver.run(1, write)
    assert [one.checkpoint for one in driver.of(SinkDecided)] == [0]
    assert visible(targets["facts"]) == [*range(10)]


@POINTS
def test_a_retry_by_a_later_driver_skips_it(
    driver: Driver, another: Another, targets: Targets, folder: Path, point: str
) -> None:
    die_ahead(driver, point)
    restarted = another(options=AHEAD).recover()
    assert visible(targets["facts"]) == [*range(20)]
    assert visible(targets["lake"]) == [*range(10)]
    restarted.run(1)
    whole(targets, 2)
    body = completed_of(folder, 1)
    attempts = {name: pieces[0].transaction.attempt for name, pieces in body.committables.items()}
    assert attempts["facts"].generation < attempts["lake"].generation == body.attempt.generation
    assert restarted.of(CheckpointDecided)[-1].rows_by_sink == {"facts": 10, "lake": 10}


@POINTS
@pytest.mark.parametrize("modes", [(AHEAD, {}), ({}, AHEAD)], ids=["to exactly_once", "and back"])
def test_the_mode_may_change_between_runs(
    driver: Driver, another: Another, targets: Targets, point: str, modes: Any
) -> None:
    die_ahead(driver, point)
    dying("C06", lambda: another(options=modes[0]).recover().run(1))
    restarted = another(options=modes[1]).recover()
    restarted.run(1)
    restarted.run(2)
    whole(targets, 3)


@POINTS
def test_i2_it_is_never_aborted(
    driver: Driver, another: Another, targets: Targets, point: str
) -> None:
    die_ahead(driver, point)
    for _ in range(3):
        restarted = another(options=AHEAD).recover()
        assert not restarted.of(OrphansAborted)
    assert visible(targets["facts"]) == [*range(20)]


def test_what_other_sinks_had_prepared_is_aborted(
    driver: Driver, another: Another, targets: Targets
) -> None:
    dying("C06", lambda: driver.run(1))
    assert targets["lake"].prepared
    assert not targets["facts"].prepared
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


def test_a_declined_attempt_does_not_take_it_back(another: Another, targets: Targets) -> None:
    driver = another(options={**AHEAD, "checkpoint.tolerable_failures": 1}).recover()
    driver.run(0, failing_last(driver, DeclinedError("no")))
    whole(targets, 1)
    assert len(driver.of(SinkDecided)) == 1
    driver.run(1)
    whole(targets, 2)


def test_a_failed_attempt_is_finished_after_a_restart(
    driver: Driver, another: Another, targets: Targets
) -> None:
    with pytest.raises(DeclinedError):
        driver.run(1, failing_last(driver, DeclinedError("no")))
    assert visible(targets["facts"]) == [*range(20)]
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


def test_other_offsets_stop_the_job(driver: Driver, another: Another, targets: Targets) -> None:
    die_ahead(driver, "A02")
    restarted = another(options=AHEAD).recover()
    with pytest.raises(OffsetMismatchError, match="sink 'facts' has committed it with other"):
        restarted.coordinator.classify(1, FrozenOffsets(offsets(1).start, ('{"next":99}',)))
    assert visible(targets["lake"]) == [*range(10)]


def test_other_rows_of_a_retry_are_not_noticed(
    driver: Driver, another: Another, targets: Targets
) -> None:
    die_ahead(driver, "A02")
    restarted = another(options=AHEAD).recover()
    restarted.run(1, lambda pending: restarted.write_rows(pending, 500))
    assert visible(targets["facts"]) == [*range(20)]
    assert visible(targets["lake"]) == [*range(10), *range(500, 510)]


def test_it_may_be_ahead_in_the_first_checkpoint(another: Another, targets: Targets) -> None:
    die_ahead(another(options=AHEAD).recover(), "A02", 0)
    assert visible(targets["facts"]) == [*range(10)]
    another(options=AHEAD).recover().run(0)
    whole(targets, 1)


def test_several_sinks_may_be_ahead(tmp_path: Path) -> None:
    targets = {name: MemoryTarget() for name in ("facts", "lake", "files")}
    driver = Driver(tmp_path / "job", targets, AHEAD).recover()
    dying("C06", lambda: driver.run(0))
    assert ahead(tmp_path / "job") == [("facts", 0), ("lake", 0)]
    Driver(tmp_path / "job", targets, AHEAD).recover().run(0)
    whole(targets, 1)


class Unreachable(OpenMemorySink):
    """A sink that commits nothing until `tries` are used up."""

    tries = 1

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        if self.tries:
            self.tries -= 1
            return [RetryLater("down")] * len(requests)
        return super().commit(requests)


def unreachable(another: Another, targets: Targets, tries: int, **options: Any) -> Driver:
    sink = Unreachable(targets["facts"], JOB, "facts")
    sink.tries = tries
    sinks = {"facts": sink, "lake": OpenMemorySink(targets["lake"], JOB, "lake")}
    return another(options={**AHEAD, **options}, sinks=sinks).recover()


def test_one_that_cannot_commit_at_once_does_not_hold_up_the_others(
    another: Another, targets: Targets
) -> None:
    driver = unreachable(another, targets, 1)
    seen = []

    def write(pending: PendingCheckpoint) -> None:
        _write_some(driver, pending, ["facts"])
        seen.append(visible(targets["facts"]))
        driver.write(pending)

    driver.run(0, write)
    assert seen == [[]]
    assert [one.reason for one in driver.of(CommitRetried)] == ["down"]
    whole(targets, 1)


def test_it_is_committed_before_a_declined_attempt_is_closed(
    another: Another, targets: Targets
) -> None:
    driver = unreachable(another, targets, 3)
    with pytest.raises(DeclinedError):
        driver.run(0, failing_last(driver, DeclinedError("no")))
    assert visible(targets["facts"]) == [*range(10)]
    assert len(driver.of(CommitRetried)) == 3


def test_a_stop_leaves_it_to_the_next_recovery(another: Another, targets: Targets) -> None:
    driver = unreachable(another, targets, 99)
    stop = driver.context.stopping.set

    def write(pending: PendingCheckpoint) -> None:
        _write_some(driver, pending, ["facts"])
        stop()
        raise DeclinedError("stopped")

    with pytest.raises(DeclinedError):
        driver.run(0, write)
    assert visible(targets["facts"]) == []
    assert targets["facts"].prepared
    another(options=AHEAD).recover()
    assert visible(targets["facts"]) == [*range(10)]


def test_i7_a_fenced_driver_commits_nothing_ahead(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    def write(pending: PendingCheckpoint) -> None:
        other = JobLog(LocalStorage(folder), JOB)
        other.append(FenceRecord(other.read().generation + 1))
        driver.write(pending)

    with pytest.raises(FencedError):
        driver.run(1, write)
    assert visible(targets["facts"]) == [*range(10)]


class Unclear(LocalStorage):
    """A storage in which the outcome of one kind of record is never known."""

    def create(self, name: str, data: bytes, *rest: Any) -> None:
        super().create(name, data, *rest)
        if b" SINK_DECIDED " in data[:64]:
            raise UnclearOutcomeError("lost the answer")


def test_in_doubt_it_is_neither_committed_nor_aborted(
    driver: Driver, another: Another, targets: Targets, folder: Path
) -> None:
    unclear = another(options=AHEAD, storage=Unclear(folder)).recover()
    with pytest.raises(InDoubtError):
        unclear.run(1)
    assert visible(targets["facts"]) == [*range(10)]
    assert targets["facts"].prepared
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


class Full(LocalStorage):
    """A storage without room for the decision on a sink."""

    def create(self, name: str, data: bytes, *rest: Any) -> None:
        if b" SINK_DECIDED " in data[:64]:
            raise OSError("no space left")
        super().create(name, data, *rest)


def test_a_record_that_was_not_written_declines_the_attempt(
    driver: Driver, another: Another, targets: Targets, folder: Path
) -> None:
    with pytest.raises(DeclinedError, match="decision on sink 'facts' could not be written"):
        another(options=AHEAD, storage=Full(folder)).recover().run(1)
    whole(targets, 1)


def test_i6_a_sink_that_no_record_explains_is_refused(
    driver: Driver, another: Another, folder: Path
) -> None:
    die_ahead(driver, "A02")
    max((folder / "log").iterdir()).unlink()
    with pytest.raises(CheckpointMissingError, match="'facts' has committed checkpoint 1"):
        another(options=AHEAD).recover()


def test_i6_the_record_of_one_sink_does_not_explain_another(
    driver: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A02")
    targets["lake"].ledger |= {(*one[:1], "lake", *one[2:]) for one in targets["facts"].ledger}
    with pytest.raises(CheckpointMissingError, match="'lake' has committed checkpoint 1"):
        another(options=AHEAD).recover()


def test_a_folded_log_keeps_it(
    driver: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A01")
    for _ in range(40):
        dying("C22", lambda: another(options=AHEAD).recover())
    assert len([*(folder / "log").iterdir()]) < 40
    assert ahead(folder) == [("facts", 1)]
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


def test_its_piece_is_the_predecessor_of_the_next_one(
    driver: Driver, another: Another, targets: Targets, folder: Path
) -> None:
    die_ahead(driver, "A01")
    restarted = another(options=AHEAD).recover()
    restarted.run(1)
    restarted.run(2)
    assert [one.checkpoint for one in completed_of(folder, 2).predecessors or ()] == [1, 1]
    whole(targets, 3)


def test_a_sink_that_is_ahead_may_not_leave_the_job(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    die_ahead(driver, "A01")
    with pytest.raises(StopJobError, match="has pieces to commit in facts"):
        Driver(folder, {"lake": targets["lake"]}, AHEAD).recover()
    Driver(folder, targets, AHEAD).recover().run(1)
    whole(targets, 2)


def test_the_last_other_sink_may_leave_the_job(
    driver: Driver, targets: Targets, folder: Path
) -> None:
    die_ahead(driver, "A02")
    Driver(folder, {"facts": targets["facts"]}, AHEAD).recover().run(1)
    assert visible(targets["facts"]) == [*range(20)]


def test_a_sink_that_is_decided_cannot_acknowledge_again(driver: Driver, another: Another) -> None:
    die_ahead(driver, "A02")
    restarted = another(options=AHEAD).recover()
    with pytest.raises(DeclinedError, match="do not belong together"):
        restarted.run(1, lambda pending: void(pending.acknowledge("facts", [])))


def void(_: object) -> None:
    """Drop a value."""


@POINTS
def test_a_restore_before_it_is_refused(
    driver: Driver, another: Another, folder: Path, targets: Targets, point: str
) -> None:
    restore = restoring(completed_of(folder, 0), committed=True)
    die_ahead(driver, point)
    with pytest.raises(RestoreRefusedError):
        another(options=AHEAD).coordinator.recover(None, restore)
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


@POINTS
def test_a_rewind_takes_it_back(
    driver: Driver, another: Another, folder: Path, targets: Targets, point: str
) -> None:
    die_ahead(driver, point)
    restore = restoring(completed_of(folder, 0), committed=True)
    restore = replace(restore, sink_ahead=SinkAhead.REWIND)
    restarted = another(options=AHEAD)
    restarted.coordinator.recover(None, restore)
    restarted.coordinator.begin_lineage(restore.lineage)
    whole(targets, 1)
    assert ahead(folder) == []
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


@pytest.mark.parametrize("died", ["C18", "C22", "S11", "S12", "S13"])
def test_a_rewind_that_dies_is_made_good_by_the_same_restore(
    driver: Driver, another: Another, folder: Path, targets: Targets, died: str
) -> None:
    die_ahead(driver, "A01")
    restore = restoring(completed_of(folder, 0), committed=True)
    restore = replace(restore, sink_ahead=SinkAhead.REWIND)
    dying(died, lambda: another(options=AHEAD).coordinator.recover(None, restore))
    restarted = another(options=AHEAD)
    restarted.coordinator.recover(None, restore)
    restarted.coordinator.begin_lineage(restore.lineage)
    whole(targets, 1)


@POINTS
@pytest.mark.parametrize("policy", ["refuse", "rewind"])
def test_a_restore_into_another_folder_is_refused(
    driver: Driver, folder: Path, tmp_path: Path, point: str, policy: str
) -> None:
    """What the log beside the checkpoint has decided would be aborted there."""
    die_ahead(driver, point)
    options = JobOptions.parse(
        {"checkpointLocation": str(tmp_path / "new"), "restore.sink_ahead": policy}, "job"
    )
    [decision] = history(folder).decisions
    with pytest.raises(RestoreRefusedError, match="'facts' commits checkpoint 1 after it"):
        restore_of_checkpoint(JOB, folder / decision.folder, options, tmp_path / "new")


def test_a_rewind_in_its_own_folder_may_read_the_checkpoint(driver: Driver, folder: Path) -> None:
    die_ahead(driver, "A01")
    options = JobOptions.parse(
        {"checkpointLocation": str(folder), "restore.sink_ahead": "rewind"}, "job"
    )
    [decision] = history(folder).decisions
    found = restore_of_checkpoint(JOB, folder / decision.folder, options, folder)
    assert found.checkpoint.checkpoint == 0


def test_lost_pieces_can_be_given_up(
    driver: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A01")
    lose(targets["facts"], 1, 1)
    with pytest.raises(LostCommittableError, match="5 rows"):
        another(options=AHEAD).recover()
    repairing = accept_loss(folder, targets)
    plan = repairing.plan(1, "facts")
    assert (plan.rows, plan.start, plan.end) == (5, offsets(1).start, offsets(1).end)
    repairing.accept(plan, NOTE)
    assert visible(targets["facts"]) == [*range(15)]
    restarted = another(options=AHEAD).recover()
    restarted.run(1)
    restarted.run(2)
    assert visible(targets["facts"]) == [*range(15), *range(20, 30)]
    assert visible(targets["lake"]) == [*range(30)]


def test_all_lost_pieces_can_be_given_up(
    driver: Driver, another: Another, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A01")
    lose(targets["facts"], 1, 0, 1)
    repairing = accept_loss(folder, targets)
    repairing.accept(repairing.plan(1, "facts"), NOTE)
    restarted = another(options=AHEAD).recover()
    restarted.run(1)
    restarted.run(2)
    assert visible(targets["facts"]) == [*range(10), *range(20, 30)]


def test_a_loss_in_a_sink_that_is_not_ahead_is_not_found(
    driver: Driver, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A01")
    with pytest.raises(ConfigError, match="checkpoint 1 is not decided"):
        accept_loss(folder, targets).plan(1, "lake")


class NothingToRead:
    """A source that must not be asked."""

    def ranges(self, lost: Lost) -> Sequence[str]:
        raise AssertionError(lost)

    def write(self, lost: Lost, transaction: TransactionId) -> dict[int, Any]:
        raise AssertionError(lost, transaction)


def test_lost_pieces_cannot_be_written_again(
    driver: Driver, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A01")
    lose(targets["facts"], 1, 1)
    with pytest.raises(StopJobError, match="ahead of the others"):
        RewriteRepair(context(folder, targets, AHEAD), NothingToRead()).plan(1, "facts")


def context(folder: Path, targets: Targets, options: dict[str, Any]) -> JobContext:
    sinks = {name: OpenMemorySink(target, JOB, name) for name, target in targets.items()}
    parsed = JobOptions.parse({"checkpointLocation": str(folder), **options}, "job")
    return JobContext(JOB, LocalStorage(folder), sinks, parsed, Observers(), ManualClock())


def test_a_log_with_a_sink_ahead_adopts_nothing(
    driver: Driver, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A02")
    shutil.rmtree(folder / "chk")
    with pytest.raises(StopJobError, match="sink 'facts' is ahead"):
        AdoptionRepair(context(folder, targets, AHEAD), frozen).plan()


@POINTS
def test_where_the_job_goes_on_by_itself_nothing_is_to_be_deleted(
    driver: Driver, another: Another, folder: Path, targets: Targets, point: str
) -> None:
    die_ahead(driver, point)
    with pytest.raises(StopJobError, match="there is nothing to adopt"):
        AdoptionRepair(context(folder, targets, AHEAD), frozen).plan()
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


def delete_by_hand(target: MemoryTarget, number: int) -> None:
    """Roll back what is prepared of a checkpoint; delete its rows and proofs."""
    gone = range(10 * number, 10 * number + 10)
    target.visible = [row for row in target.visible if row["id"] not in gone]
    target.ledger = {key for key in target.ledger if key[3] != number}
    target.prepared = {key: rows for key, rows in target.prepared.items() if key[3] != number}


@POINTS
def test_a_log_with_a_sink_ahead_adopts_what_is_before_it_when_that_is_deleted_by_hand(
    driver: Driver, another: Another, folder: Path, targets: Targets, point: str
) -> None:
    """There is no backup of the folder, and no savepoint."""
    die_ahead(driver, point)
    shutil.rmtree(folder / "chk")
    repairing = AdoptionRepair(context(folder, targets, AHEAD), frozen)
    with pytest.raises(StopJobError, match=r"'facts' is ahead: .* checkpoint 1") as caught:
        repairing.plan()
    assert "delete its rows and proofs there by hand" in caught.value.remedy
    delete_by_hand(targets["facts"], 1)
    repairing.adopt(repairing.plan(), NOTE)
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


def test_it_is_deleted_in_each_sink_that_is_ahead(
    another: Another, folder: Path, targets: Targets
) -> None:
    targets["copy"] = MemoryTarget()
    driver = another(options=AHEAD).recover()
    driver.run(0)
    with pytest.raises(KeyboardInterrupt):
        driver.run(1, failing_last(driver, KeyboardInterrupt()))
    shutil.rmtree(folder / "chk")
    repairing = AdoptionRepair(context(folder, targets, AHEAD), frozen)
    for sink in ("facts", "lake"):
        with pytest.raises(StopJobError, match=f"sink '{sink}' is ahead"):
            repairing.plan()
        delete_by_hand(targets[sink], 1)
    repairing.adopt(repairing.plan(), NOTE)
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "decided only"])
def test_an_older_log_with_a_sink_ahead_adopts_what_all_others_have(
    driver: Driver, another: Another, folder: Path, targets: Targets, committed: bool
) -> None:
    die_ahead(driver, "A01")
    older = shutil.copytree(folder, folder.with_name("older"))
    facts, prepared = backup(targets["facts"]), dict(targets["facts"].prepared)
    another(options=AHEAD).recover().run(1)
    if not committed:
        restore_target(targets["facts"], facts)
        targets["facts"].prepared = prepared
    shutil.rmtree(folder)
    older.rename(folder)
    with pytest.raises(CheckpointMissingError, match="'lake' has committed checkpoint 1"):
        another(options=AHEAD).recover()
    repairing = AdoptionRepair(context(folder, targets, AHEAD), frozen)
    repairing.adopt(repairing.plan(), NOTE)
    lineage = another(options=AHEAD).recover().coordinator.lineage
    assert (lineage.start, lineage.first_checkpoint) == (offsets(1).end, 1)
    whole(targets, 2)


def test_without_the_log_a_checkpoint_of_some_sinks_is_not_adopted(
    driver: Driver, folder: Path, targets: Targets
) -> None:
    die_ahead(driver, "A02")
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    with pytest.raises(StopJobError, match="committed in facts and not in lake"):
        AdoptionRepair(context(folder, targets, AHEAD), frozen).plan()
    assert AdoptionRepair(context(folder, targets, {}), frozen).plan().checkpoint == 1


def test_a_checkpoint_that_the_log_has_decided_is_adopted_whole(
    driver: Driver, folder: Path, targets: Targets
) -> None:
    def nothing_for_lake(pending: PendingCheckpoint) -> None:
        _write_some(driver, pending, ["facts"])
        pending.acknowledge("lake", [])

    driver.run(1, nothing_for_lake)
    shutil.rmtree(folder / "chk")
    assert AdoptionRepair(context(folder, targets, AHEAD), frozen).plan().checkpoint == 1


def test_without_the_log_a_checkpoint_of_all_sinks_is_adopted(
    driver: Driver, folder: Path, targets: Targets
) -> None:
    driver.run(1)
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    assert AdoptionRepair(context(folder, targets, AHEAD), frozen).plan().checkpoint == 1


def elsewhere(tmp_path: Path, targets: Targets, restore: Restore) -> Driver:
    """A driver that restores a savepoint of checkpoint 0 into a folder of its own."""
    driver = Driver(tmp_path / "elsewhere", targets, AHEAD)
    driver.coordinator.recover(None, restore)
    driver.coordinator.begin_lineage(restore.lineage)
    return driver


def test_a_savepoint_before_it_is_refused_in_another_folder(
    driver: Driver, another: Another, folder: Path, tmp_path: Path, targets: Targets
) -> None:
    restore = restoring(completed_of(folder, 0), committed=True)
    die_ahead(driver, "A02")
    with pytest.raises(RestoreRefusedError, match="'facts' has committed checkpoint 1"):
        elsewhere(tmp_path, targets, restore)
    another(options=AHEAD).recover().run(1)
    whole(targets, 2)


def test_a_savepoint_before_it_is_rewound_to_in_another_folder(
    driver: Driver, another: Another, folder: Path, tmp_path: Path, targets: Targets
) -> None:
    restore = restoring(completed_of(folder, 0), committed=True)
    die_ahead(driver, "A02")
    elsewhere(tmp_path, targets, replace(restore, sink_ahead=SinkAhead.REWIND)).run(1)
    whole(targets, 2)
    with pytest.raises(CheckpointMissingError):
        another(options=AHEAD).recover()


@pytest.mark.parametrize("policy", [SinkAhead.REFUSE, SinkAhead.REWIND])
def test_what_no_target_shows_yet_is_written_again_in_another_folder(
    driver: Driver,
    another: Another,
    folder: Path,
    tmp_path: Path,
    targets: Targets,
    policy: SinkAhead,
) -> None:
    """As any decision of a log that the restored folder does not have (decision 0025)."""
    restore = restoring(completed_of(folder, 0), committed=True)
    die_ahead(driver, "A01")
    elsewhere(tmp_path, targets, replace(restore, sink_ahead=policy)).run(1)
    whole(targets, 2)
    with pytest.raises(CheckpointMissingError):
        another(options=AHEAD).recover()
    whole(targets, 2)


def test_nothing_is_kept_of_a_sink_that_is_not_ahead_any_more(driver: Driver) -> None:
    for number in range(1, 9):
        driver.run(number)
    assert len(driver.context.sink_decisions._proven) == 1
