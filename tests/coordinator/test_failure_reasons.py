"""Why a checkpoint failed: Flink's names, each with a message and a row in the documentation."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import Driver
from twophase.contract.outcome import CommitOutcome, Lost, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.failure_manager import FailureManager
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import (
    CheckpointExpiredError,
    DeclinedError,
    LostCommittableError,
    RejectedRowsError,
)
from twophase.events import CheckpointDeclined, CheckpointNotTriggered, CheckpointTriggered
from twophase.failure_reason import CheckpointFailureReason as Reason
from twophase.state.files.storage import LocalStorage

ROOT = Path(__file__).parent.parent.parent

# Flink's CheckpointFailureReason; EXCEPTION is of its older versions. Left out: the two of shared
# channel state and of blocking edges, CHANNEL_STATE_SHARED_STREAM_EXCEPTION and
# BLOCKING_OUTPUT_EXIST.
FLINK = {
    "PERIODIC_SCHEDULER_SHUTDOWN",
    "TOO_MANY_CHECKPOINT_REQUESTS",
    "MINIMUM_TIME_BETWEEN_CHECKPOINTS",
    "NOT_ALL_REQUIRED_TASKS_RUNNING",
    "EXCEPTION",
    "IO_EXCEPTION",
    "CHECKPOINT_ASYNC_EXCEPTION",
    "CHECKPOINT_EXPIRED",
    "CHECKPOINT_SUBSUMED",
    "CHECKPOINT_DECLINED",
    "CHECKPOINT_DECLINED_TASK_NOT_READY",
    "CHECKPOINT_DECLINED_TASK_CLOSING",
    "CHECKPOINT_DECLINED_SUBSUMED",
    "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER",
    "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM",
    "CHECKPOINT_COORDINATOR_SHUTDOWN",
    "CHECKPOINT_COORDINATOR_SUSPEND",
    "JOB_FAILOVER_REGION",
    "TASK_FAILURE",
    "TASK_CHECKPOINT_FAILURE",
    "UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE",
    "FINALIZE_CHECKPOINT_FAILURE",
    "TRIGGER_CHECKPOINT_FAILURE",
}


def test_the_names_are_flink_s_and_no_member_hides_another() -> None:
    assert {reason.name for reason in Reason} == FLINK
    assert len(Reason.__members__) == len(FLINK)


def test_every_reason_has_a_message_of_its_own() -> None:
    messages = [reason.message for reason in Reason]
    assert len(set(messages)) == len(messages)
    assert all(message.endswith(".") for message in messages)


def test_what_spark_cannot_raise_does_not_count_against_the_tolerable_failures() -> None:
    assert not any(reason.counts for reason in Reason if "not raised on Spark" in reason.message)


def test_every_reason_is_documented_with_its_message_and_whether_it_counts() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| (yes|no) \|",
        (ROOT / "docs/failure-reasons.md").read_text(),
        re.MULTILINE,
    )
    assert sorted(rows) == sorted(
        (reason.name, reason.message, "yes" if reason.counts else "no") for reason in Reason
    )


COUNTED_BY_FLINK = {
    "IO_EXCEPTION",
    "CHECKPOINT_ASYNC_EXCEPTION",
    "CHECKPOINT_DECLINED",
    "CHECKPOINT_EXPIRED",
    "FINALIZE_CHECKPOINT_FAILURE",
}


def test_those_count_that_flink_s_failure_manager_counts() -> None:
    assert {reason.name for reason in Reason if reason.counts} == COUNTED_BY_FLINK


def fail(error: Exception) -> Callable[[PendingCheckpoint], None]:
    def pre_commit(pending: PendingCheckpoint) -> None:
        raise error

    return pre_commit


def reasons(driver: Driver) -> list[str]:
    return [event.reason for event in driver.of(CheckpointDeclined)]


def not_triggered(driver: Driver) -> list[str]:
    return [event.reason for event in driver.of(CheckpointNotTriggered)]


def test_an_error_of_a_sink_is_a_decline(driver: Driver) -> None:
    with pytest.raises(DeclinedError):
        driver.run(0, fail(DeclinedError("a sink said no")))
    assert reasons(driver) == ["CHECKPOINT_DECLINED"]


def test_a_timeout_is_an_expiry(driver: Driver) -> None:
    with pytest.raises(CheckpointExpiredError) as caught:
        driver.run(0, fail(CheckpointExpiredError("too slow")))
    assert caught.value.reason is Reason.CHECKPOINT_EXPIRED
    assert reasons(driver) == ["CHECKPOINT_EXPIRED"]


@pytest.mark.parametrize("reason", list(Reason))
def test_the_reason_is_the_one_that_the_error_carries(driver: Driver, reason: Reason) -> None:
    with pytest.raises(DeclinedError) as caught:
        driver.run(0, fail(DeclinedError("no", reason=reason)))
    assert caught.value.reason is reason
    assert reasons(driver) == [reason.name]


def failing_create(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file can be made in a folder of the job's."""
    create = LocalStorage.create

    def full(self: LocalStorage, name: str, *rest: Any) -> None:
        if name.startswith(folder):
            raise OSError(28, "No space left on device")
        create(self, name, *rest)

    monkeypatch.setattr(LocalStorage, "create", full)


@pytest.mark.parametrize(
    ("folder", "reason"),
    [("chk/", "IO_EXCEPTION"), ("log/", "FINALIZE_CHECKPOINT_FAILURE")],
)
def test_a_full_disk_is_named_by_what_could_not_be_written(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, folder: str, reason: str
) -> None:
    failing_create(folder, monkeypatch)
    with pytest.raises(DeclinedError, match="No space left"):
        driver.run(0)
    assert reasons(driver) == [reason]


@pytest.mark.parametrize("state", [ValueError("no state"), {"functions": {"no": {"JSON"}}}])
def test_a_state_that_cannot_be_snapshotted_is_an_asynchronous_exception(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    def snapshot(*_: object) -> Any:
        if isinstance(state, Exception):
            raise state
        return state

    monkeypatch.setattr(driver.coordinator, "_snapshot", snapshot)
    with pytest.raises(DeclinedError):
        driver.run(0)
    assert reasons(driver) == ["CHECKPOINT_ASYNC_EXCEPTION"]


def test_a_store_that_cannot_be_read_at_the_trigger_is_a_trigger_failure(driver: Driver) -> None:
    """What a micro-batch does then: `tests/spark/batch/test_failure_reasons.py`."""
    error = driver.coordinator.cannot_trigger(3, OSError("Input/output error"))
    assert error.reason is Reason.TRIGGER_CHECKPOINT_FAILURE
    assert not_triggered(driver) == ["TRIGGER_CHECKPOINT_FAILURE"]


def test_a_stop_before_the_decision_shuts_the_coordinator_down(driver: Driver) -> None:
    def stopped(pending: PendingCheckpoint) -> None:
        driver.context.stopping.set()
        raise DeclinedError("cancelled", reason=Reason.TASK_FAILURE)

    with pytest.raises(DeclinedError) as caught:
        driver.run(0, stopped)
    assert caught.value.reason is Reason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert reasons(driver) == ["CHECKPOINT_COORDINATOR_SHUTDOWN"]


def test_a_stop_does_not_hide_a_failure_that_it_cannot_have_caused(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_create("chk/", monkeypatch)
    driver.context.stopping.set()
    with pytest.raises(DeclinedError):
        driver.run(0)
    assert reasons(driver) == ["IO_EXCEPTION"]


def test_a_commit_behind_that_fails_suspends_the_coordinator(
    another: Callable[..., Driver],
) -> None:
    driver = another(options={"checkpoint.max_concurrent": 2}).recover()
    coordinator, begun = driver.coordinator, threading.Event()
    coordinator._commit_queue._on_failure = coordinator.context.stopping.set

    def lose(requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        begun.wait()
        return [Lost("gone") for _ in requests]

    driver.sinks["facts"].commit = lose  # type: ignore[method-assign]
    driver.run(0)

    def cancelled(pending: PendingCheckpoint) -> None:
        begun.set()
        coordinator.context.stopping.wait()
        raise DeclinedError("cancelled", reason=Reason.TASK_FAILURE)

    with pytest.raises(LostCommittableError):
        driver.run(1, cancelled)
    assert reasons(driver) == ["CHECKPOINT_COORDINATOR_SUSPEND"]


def test_a_trigger_within_the_minimum_pause_is_put_off(another: Callable[..., Driver]) -> None:
    driver = another(options={"checkpoint.min_pause": "5 s"}).recover()
    driver.run(0)
    driver.run(1)
    assert driver.clock.waits == [5.0]
    assert not_triggered(driver) == ["MINIMUM_TIME_BETWEEN_CHECKPOINTS"]
    assert reasons(driver) == []


def test_a_stop_within_the_minimum_pause_begins_no_attempt(
    another: Callable[..., Driver],
) -> None:
    driver = another(options={"checkpoint.min_pause": "5 s"}).recover()
    driver.run(0)
    driver.context.stopping.set()
    with pytest.raises(DeclinedError, match="did not begin: the job is stopping"):
        driver.run(1)
    assert not_triggered(driver) == [
        "MINIMUM_TIME_BETWEEN_CHECKPOINTS",
        "PERIODIC_SCHEDULER_SHUTDOWN",
    ]
    assert len(driver.of(CheckpointTriggered)) == 1


def test_a_stop_before_everything_is_committed_begins_no_attempt(driver: Driver) -> None:
    driver.context.stopping.set()
    driver.sinks["facts"].commit = lambda requests: [  # type: ignore[method-assign]
        RetryLater("down") for _ in requests
    ]
    driver.run(0)
    with pytest.raises(DeclinedError, match="did not begin") as caught:
        driver.run(1)
    assert caught.value.reason is Reason.PERIODIC_SCHEDULER_SHUTDOWN
    assert not_triggered(driver) == ["PERIODIC_SCHEDULER_SHUTDOWN"]


def retried(driver: Driver) -> list[bool]:
    return [event.will_retry for event in driver.of(CheckpointDeclined)]


def declines(driver: Driver, number: int, *given: Reason) -> None:
    """The next attempts at a checkpoint fail, one for each reason; the one after is decided."""
    left = [*given]

    def pre_commit(pending: PendingCheckpoint) -> None:
        if left:
            raise DeclinedError("no", reason=left.pop(0))
        driver.write(pending)

    driver.run(number, pre_commit)


def test_failures_are_tolerated_in_a_row_and_a_decision_sets_the_count_back(
    another: Callable[..., Driver],
) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 2}).recover()
    declined = Reason.CHECKPOINT_DECLINED
    for number in range(3):
        declines(driver, number, declined, declined)
    assert retried(driver) == [True] * 6
    with pytest.raises(DeclinedError):
        declines(driver, 3, declined, Reason.CHECKPOINT_EXPIRED, Reason.IO_EXCEPTION)
    assert retried(driver)[6:] == [True, True, False]


@pytest.mark.parametrize("reason", [reason for reason in Reason if not reason.counts])
def test_a_failure_that_does_not_count_is_not_retried_in_place(
    another: Callable[..., Driver], reason: Reason
) -> None:
    """The query fails with it, and the restart strategy takes over, as with Flink's tasks."""
    driver = another(options={"checkpoint.tolerable_failures": 5}).recover()
    with pytest.raises(DeclinedError):
        declines(driver, 0, reason)
    assert retried(driver) == [False]


def test_the_count_outlives_a_restart_by_a_failure_that_does_not_count() -> None:
    failures = FailureManager(tolerable=1)
    assert failures.tolerates(Reason.CHECKPOINT_DECLINED)
    assert not failures.tolerates(Reason.TASK_FAILURE)
    assert not failures.tolerates(Reason.CHECKPOINT_DECLINED)
    assert failures.tolerates(Reason.CHECKPOINT_DECLINED), "what passes the limit sets it back"
    failures.succeeded()
    assert failures.tolerates(Reason.CHECKPOINT_DECLINED)


def test_rows_that_a_retry_would_meet_again_are_not_retried(another: Callable[..., Driver]) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 5}).recover()
    with pytest.raises(RejectedRowsError):
        driver.run(0, fail(RejectedRowsError("row 7")))
    assert [event.will_retry for event in driver.of(CheckpointDeclined)] == [False]
