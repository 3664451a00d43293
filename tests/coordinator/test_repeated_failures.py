"""A checkpoint that fails in the same way again and again ends the job; one that nobody has
answered is tried for ever.
"""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable

import pytest

from harness.memory_driver import Driver, visible
from twophase.coordinator.commit.failure_manager import SAME_FAILURES, FailureManager
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import DeclinedError, FenceLostError, RepeatedFailureError, fingerprint_of
from twophase.failure_reason import CheckpointFailureReason as Reason
from twophase.testing.memory import MemoryTarget

MANY = 3 * SAME_FAILURES


def failing(fingerprint: str) -> Callable[[PendingCheckpoint], None]:
    def pre_commit(pending: PendingCheckpoint) -> None:
        raise DeclinedError(f"{pending.attempt} said no", fingerprint=fingerprint)

    return pre_commit


def ends_after(driver: Driver, *fingerprints: str) -> int | None:
    """Return at which failure of checkpoint 0 the job ends; None if it never does."""
    for count, fingerprint in enumerate(fingerprints, 1):
        with pytest.raises(DeclinedError) as caught:
            driver.run(0, failing(fingerprint))
        if not caught.value.restartable:
            return count
    return None


def test_the_same_failure_so_many_times_in_a_row_ends_the_job(driver: Driver) -> None:
    assert ends_after(driver, *["1467"] * MANY) == SAME_FAILURES


def test_a_fence_that_is_lost_each_time_ends_the_job(
    driver: Driver, targets: dict[str, MemoryTarget]
) -> None:
    def failing_again(pending: PendingCheckpoint) -> None:
        targets["facts"].fences.clear()
        driver.write(pending)

    for _ in range(SAME_FAILURES - 1):
        with pytest.raises(FenceLostError):
            driver.run(0, failing_again)
        driver.recover()
    with pytest.raises(RepeatedFailureError, match="has no fence"):
        driver.run(0, failing_again)


def test_a_job_that_ended_by_a_failure_goes_on_when_its_cause_is_removed(
    driver: Driver, another: Callable[..., Driver], targets: dict[str, MemoryTarget]
) -> None:
    assert ends_after(driver, *["1467"] * MANY) == SAME_FAILURES
    another().recover().run(0)
    assert visible(targets["facts"]) == list(range(10))


def test_the_end_is_named_with_the_last_cause_and_keeps_its_reason(driver: Driver) -> None:
    for _ in range(SAME_FAILURES - 1):
        driver.context.failures.judge(0, DeclinedError("first", fingerprint="a"))
    error = DeclinedError("no", remedy="do this.", reason=Reason.TASK_FAILURE, fingerprint="a")
    ending = driver.context.failures.judge(0, error)
    assert isinstance(ending, RepeatedFailureError)
    assert (ending.exit_code, ending.restartable, ending.reason) == (3, False, error.reason)
    assert str(ending).startswith(f"no Checkpoint 0 has failed in this way {SAME_FAILURES} times")
    assert str(ending).endswith("nothing of this attempt is visible. Next: do this.")
    assert ending.__cause__ is error


def test_a_failure_may_have_a_limit_of_its_own() -> None:
    """So that a worker's error has it in the driver too."""
    failures, error = FailureManager(0), DeclinedError("no", fingerprint="a", limit=3)
    judged = [failures.judge(0, pickle.loads(pickle.dumps(error))) for _ in range(3)]
    assert [one.restartable for one in judged] == [True, True, False]
    assert "failed in this way 3 times" in str(judged[-1])


def test_failures_that_nobody_has_answered_never_end_it(driver: Driver) -> None:
    assert ends_after(driver, *[""] * MANY) is None


def test_a_failure_without_an_answer_in_between_is_no_other_answer(driver: Driver) -> None:
    assert ends_after(driver, *["1467", ""] * MANY) == 2 * SAME_FAILURES - 1


def test_failures_of_different_kinds_are_not_the_same(driver: Driver) -> None:
    assert ends_after(driver, *["1467", "1213"] * MANY) is None


def test_another_checkpoint_begins_again(driver: Driver) -> None:
    for number in range(MANY):
        with pytest.raises(DeclinedError) as caught:
            driver.run(number, failing("1467"))
        assert caught.value.restartable
        driver.run(number)


def test_what_is_tolerated_in_place_is_tried_as_often_as_that() -> None:
    tolerable = 2 * SAME_FAILURES
    failures = FailureManager(tolerable)
    judged = [failures.judge(0, DeclinedError("no", fingerprint="a")) for _ in range(MANY)]
    assert [error.restartable for error in judged].index(False) == tolerable


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ValueError("7"), True),
        (KeyError("a"), True),
        (PermissionError("denied"), True),
        (OSError(28, "full"), False),
        (ConnectionResetError("gone"), False),
        (TimeoutError("slow"), False),
    ],
)
def test_a_disk_or_a_network_may_be_back(error: Exception, counts: bool) -> None:
    assert bool(fingerprint_of(error)) == counts


def test_a_fingerprint_does_not_depend_on_values() -> None:
    assert fingerprint_of(ValueError("'7' at 10:31")) == fingerprint_of(ValueError("'9' at 10:32"))
    assert fingerprint_of(ValueError("7")) != fingerprint_of(KeyError("7"))


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENAMETOOLONG])
def test_a_file_that_is_too_large_and_a_name_that_is_too_long_stay_so(number: int) -> None:
    """As the body of a checkpoint with more state than can be read back is."""
    assert fingerprint_of(OSError(number, "no"))


def test_what_ends_each_run_ends_the_job() -> None:
    """A source that cannot plan its next micro-batch, say: no attempt is begun."""
    failures, error = FailureManager(0), DeclinedError("no", fingerprint="a")
    for _ in range(SAME_FAILURES - 1):
        assert failures.judge_run(error) is error
        assert failures.judge_run(OSError("nobody answers")) is not error
    assert isinstance(failures.judge_run(error), RepeatedFailureError)


def test_what_an_attempt_is_declined_for_is_not_counted_twice() -> None:
    failures, error = FailureManager(0), DeclinedError("no", fingerprint="a")
    for _ in range(SAME_FAILURES - 1):
        failures.judge_run(failures.judge(0, error))
    assert failures.judge_run(error) is error


def test_a_decided_checkpoint_begins_the_count_of_runs_again() -> None:
    failures, error = FailureManager(0), DeclinedError("no", fingerprint="a")
    for _ in range(3):
        for _ in range(SAME_FAILURES - 1):
            assert failures.judge_run(error) is error
        failures.succeeded()
