"""Why a checkpoint failed: Flink's names, each with a message and a row in the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.memory_driver import Driver
from twophase.coordinator.failure_reason import CheckpointFailureReason
from twophase.coordinator.pending import PendingCheckpoint
from twophase.errors import CheckpointExpiredError, DeclinedError, RejectedRowsError
from twophase.events import CheckpointDeclined
from twophase.state.storage import LocalStorage

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
    assert {reason.name for reason in CheckpointFailureReason} == FLINK
    assert len(CheckpointFailureReason.__members__) == len(FLINK)


def test_every_reason_has_a_message_of_its_own() -> None:
    messages = [reason.message for reason in CheckpointFailureReason]
    assert len(set(messages)) == len(messages)
    assert all(message.endswith(".") for message in messages)


def test_what_spark_cannot_raise_does_not_count_against_the_tolerable_failures() -> None:
    assert not any(
        reason.counts
        for reason in CheckpointFailureReason
        if "not raised on Spark" in reason.message
    )


def test_every_reason_is_documented_with_its_message_and_whether_it_counts() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| (yes|no) \|",
        (ROOT / "docs/failure-reasons.md").read_text(),
        re.MULTILINE,
    )
    assert sorted(rows) == sorted(
        (reason.name, reason.message, "yes" if reason.counts else "no")
        for reason in CheckpointFailureReason
    )


def fail(error: Exception) -> Callable[[PendingCheckpoint], None]:
    def pre_commit(pending: PendingCheckpoint) -> None:
        raise error

    return pre_commit


def reasons(driver: Driver) -> list[str]:
    return [event.reason for event in driver.of(CheckpointDeclined)]


def test_an_error_of_a_sink_is_a_decline(driver: Driver) -> None:
    with pytest.raises(DeclinedError):
        driver.run(0, fail(DeclinedError("a sink said no")))
    assert reasons(driver) == ["CHECKPOINT_DECLINED"]


def test_a_timeout_is_an_expiry(driver: Driver) -> None:
    with pytest.raises(CheckpointExpiredError):
        driver.run(0, fail(CheckpointExpiredError("too slow")))
    assert reasons(driver) == ["CHECKPOINT_EXPIRED"]


def test_a_full_disk_is_an_io_exception(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: LocalStorage, *rest: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalStorage, "create", full)
    with pytest.raises(DeclinedError, match="No space left"):
        driver.run(0)
    assert reasons(driver) == ["IO_EXCEPTION"]


def test_rows_that_a_retry_would_meet_again_are_not_retried(another: Callable[..., Driver]) -> None:
    driver = another(options={"checkpoint.tolerable_failures": 5}).recover()
    with pytest.raises(RejectedRowsError):
        driver.run(0, fail(RejectedRowsError("row 7")))
    assert [event.will_retry for event in driver.of(CheckpointDeclined)] == [False]
