"""The history of a checkpoint: how long its parts took, and what was declined before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import JOB, Driver, decided, offsets
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.failure_manager import FailureManager
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import DeclinedError, NewerFormatError
from twophase.events import CheckpointCommitted, TolerableFailuresExceeded
from twophase.failure_reason import CheckpointFailureReason as Reason
from twophase.ids import Attempt
from twophase.internals.json_values import to_json
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import CommittedRecord
from twophase.state.journal.history import History, record_from_json
from twophase.state.journal.log import JobLog
from twophase.state.journal.stats import CheckpointStats, DeclinedAttempt

Another = Callable[..., Driver]


def history(folder: Path) -> History:
    return JobLog(LocalStorage(folder), JOB).read()


def takes(driver: Driver, pre_commit_s: float, commit_s: float) -> None:
    """Checkpoint 0, whose sinks take so long."""
    facts = driver.sinks["facts"]
    commit = facts.commit

    def slowly(pending: PendingCheckpoint) -> None:
        driver.clock.now_s += pre_commit_s
        driver.write(pending)

    def committing(requests: list[CommitRequest]) -> list[CommitOutcome]:
        driver.clock.now_s += commit_s
        return [*commit(requests)]

    facts.commit = committing  # type: ignore[method-assign, assignment]
    driver.run(0, slowly)


def test_the_log_has_how_long_each_part_took_and_the_size_of_the_body(
    driver: Driver, folder: Path
) -> None:
    takes(driver, 2.5, 0.75)
    [stats] = history(folder).stats
    [body] = (folder / "chk").glob("*/_metadata")
    lineage = driver.coordinator.lineage.id
    assert stats == CheckpointStats(lineage, 0, 2500, 0, 750, body.stat().st_size)


def test_the_event_has_the_same(driver: Driver) -> None:
    takes(driver, 2.5, 0.75)
    [event] = driver.of(CheckpointCommitted)
    assert (event.pre_commit_s, event.decide_s, event.commit_s) == (2.5, 0, 0.75)
    assert (event.size_bytes > 0, event.declined) == (True, ())


def declining(driver: Driver, *reasons: Reason) -> Callable[[PendingCheckpoint], None]:
    left = [*reasons]

    def pre_commit(pending: PendingCheckpoint) -> None:
        if left:
            raise DeclinedError("a sink said no.", reason=left.pop(0))
        driver.write(pending)

    return pre_commit


def test_each_declined_attempt_is_there_with_its_reason(another: Another, folder: Path) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 2}).recover()
    driver.run(0, declining(driver, Reason.CHECKPOINT_EXPIRED, Reason.IO_EXCEPTION))
    driver.run(1)
    first, second = history(folder).stats
    assert first.declined == (
        DeclinedAttempt(Attempt(1, 1), "CHECKPOINT_EXPIRED"),
        DeclinedAttempt(Attempt(1, 2), "IO_EXCEPTION"),
    )
    assert second.declined == ()
    event, _ = driver.of(CheckpointCommitted)
    assert event.declined == ("CHECKPOINT_EXPIRED", "IO_EXCEPTION")


def test_the_root_cause_is_there_when_the_limit_was_passed(another: Another, folder: Path) -> None:
    """The restarted query goes on counting and remembering: the job's parts outlive its runs."""
    driver = another(options={"checkpoint.tolerable_failures": 1}).recover()
    reasons = (Reason.CHECKPOINT_EXPIRED, Reason.CHECKPOINT_DECLINED)
    with pytest.raises(DeclinedError):
        driver.run(0, declining(driver, *reasons))
    [exceeded] = driver.of(TolerableFailuresExceeded)
    assert (exceeded.checkpoint, exceeded.failures) == (0, 2)
    assert (exceeded.reason, exceeded.cause[:16]) == ("CHECKPOINT_DECLINED", "a sink said no. ")
    restarted = another()
    restarted.context.failures = driver.context.failures
    restarted.recover().run(0)
    [stats] = history(folder).stats
    tolerated, root = stats.declined
    assert (tolerated.cause, root.cause) == ("", exceeded.cause)


def test_of_very_many_declined_attempts_the_newest_are_kept() -> None:
    failures = FailureManager(tolerable=0)
    for counter in range(1000):
        failures.remember(DeclinedAttempt(Attempt(1, counter), "TASK_FAILURE"))
    declined = failures.succeeded()
    assert (len(declined), declined[-1].attempt.counter) == (100, 999)
    assert failures.succeeded() == ()


def test_what_another_driver_commits_has_no_history(
    driver: Driver, another: Another, folder: Path
) -> None:
    decided(driver, 0)
    another().recover()
    found = history(folder)
    assert [one.committed for one in found.decisions] == [True]
    assert found.stats == ()


def test_a_fold_keeps_the_history_of_what_it_keeps(driver: Driver, folder: Path) -> None:
    for number in range(40):
        driver.run(number)
    found = history(folder)
    assert len(found.decisions) < 40
    known = [(one.lineage, one.checkpoint) for one in found.decisions]
    assert [(one.lineage, one.checkpoint) for one in found.stats] == known


def test_what_a_later_version_adds_to_it_is_refused() -> None:
    stats = CheckpointStats("a", 0, 1, 2, 3, 4)
    value = to_json(CommittedRecord("a", 0, stats))
    assert record_from_json("COMMITTED", value, "x") == CommittedRecord("a", 0, stats)
    value["stats"] = to_json(stats) | {"checksum_ms": 5}
    with pytest.raises(NewerFormatError, match=r"unknown \['checksum_ms'\]"):
        record_from_json("COMMITTED", value, "x")


def test_a_checkpoint_that_was_triggered_in_another_process_began_there(
    driver: Driver, folder: Path
) -> None:
    driver.clock.now_s = 100.0
    driver.coordinator.checkpoint(0, offsets(0), driver.write, triggered_ms=98_000)
    log = JobLog(LocalStorage(folder), JOB)
    [decision] = log.read().decisions
    body = CompletedCheckpointStore(LocalStorage(folder), log, 1).read(decision)
    assert (body.trigger_time_ms, body.duration_ms) == (98_000, 2000)
    assert log.history.stats[0].pre_commit_ms == 2000


def test_a_clock_that_was_set_to_an_earlier_time_makes_no_duration_negative(driver: Driver) -> None:
    driver.coordinator.checkpoint(0, offsets(0), driver.write, triggered_ms=5_000)
    [event] = driver.of(CheckpointCommitted)
    assert event.duration_s == 0
