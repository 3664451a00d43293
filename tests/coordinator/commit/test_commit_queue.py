"""Commits behind the next batch: ordered, bounded, recovered, and never in the way of an abort.

The sink's commits wait until the test lets them go on, so what happens in between is
no matter of luck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.memory_driver import JOB, Driver, visible
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.commit_queue import CommitQueue, plain_thread
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import DeclinedError, InDoubtError, LostCommittableError
from twophase.events import (
    CheckpointCommitted,
    CheckpointDecided,
    CheckpointDeclined,
    CheckpointTriggered,
)
from twophase.ids import Attempt
from twophase.state.checkpoints.checkpoint import OperatorStateFields
from twophase.state.files.storage import (
    NO_CRASH_POINTS,
    CrashPoints,
    LocalStorage,
    UnclearOutcomeError,
)
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink

PATIENCE_S = 30.0
A_WHILE_S = 0.5
"""In which nothing may happen; by far enough for what must not happen."""
Targets = dict[str, MemoryTarget]
Another = Callable[..., Driver]


class Gated(OpenMemorySink):
    """Commits when it is let; notes in which thread its methods run, and what
    each found prepared.
    """

    def __init__(self, target: MemoryTarget) -> None:
        super().__init__(target, JOB, "facts")
        self.lets = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.down = False
        self.threads: set[int] = set()
        self.fenced_over: list[set[int]] = []

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self.threads.add(threading.get_ident())
        self.begun.release()
        if self.down:
            return [RetryLater("down") for _ in requests]
        assert self.lets.acquire(timeout=PATIENCE_S), "nobody has let the sink commit"
        return super().commit(requests)

    def fence(self, attempt: Attempt) -> None:
        self.fenced_over.append({key[3] for key in self.target_.prepared})
        super().fence(attempt)

    @property
    def target_(self) -> MemoryTarget:
        return self._target

    def let(self, times: int = 1) -> None:
        for _ in range(times):
            self.lets.release()

    def has_begun(self) -> None:
        assert self.begun.acquire(timeout=PATIENCE_S), "no commit has begun"


@pytest.fixture
def gated(targets: Targets) -> Gated:
    return Gated(targets["facts"])


@pytest.fixture
def driver(another: Another, gated: Gated) -> Iterator[Driver]:
    """At most three checkpoints at once: two that are committed behind the one under way."""
    driver = another(sinks={"facts": gated}, options={"checkpoint.max_concurrent": 3}).recover()
    try:
        yield driver
    finally:
        gated.down = False
        gated.let(100)
        driver.coordinator.close()


def in_thread(run: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """Run something beside the test; what it raises is kept."""
    errors: list[BaseException] = []

    def keep() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 the test looks at it
            errors.append(error)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    return thread, errors


def ends(thread: threading.Thread) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it waits for ever"


def run_all(driver: Driver, numbers: Sequence[int]) -> None:
    for number in numbers:
        driver.run(number)


def checkpoints(driver: Driver, kind: type[Any]) -> list[int]:
    return [event.checkpoint for event in driver.of(kind)]


def test_a_checkpoint_is_done_for_spark_when_it_is_decided_and_commits_during_the_next(
    driver: Driver, gated: Gated, targets: Targets
) -> None:
    driver.run(0)
    driver.run(1)
    assert checkpoints(driver, CheckpointDecided) == [0, 1]
    assert visible(targets["facts"]) == []
    gated.let(2)
    driver.coordinator.close()
    assert checkpoints(driver, CheckpointCommitted) == [0, 1]
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(20))
    assert gated.threads.isdisjoint({threading.get_ident()})
    assert len(gated.threads) == 1


def test_no_more_than_max_concurrent_are_under_way(driver: Driver, gated: Gated) -> None:
    for number in (0, 1, 2):
        driver.run(number)
    thread, errors = in_thread(lambda: driver.run(3))
    gated.has_begun()
    thread.join(A_WHILE_S)
    # of the three decided, none is committed yet
    assert checkpoints(driver, CheckpointTriggered) == [0, 1, 2]
    gated.let()
    ends(thread)
    assert errors == []
    assert checkpoints(driver, CheckpointTriggered) == [0, 1, 2, 3]
    assert checkpoints(driver, CheckpointCommitted) == [0]


def test_i4_they_commit_in_the_order_of_their_decisions(
    driver: Driver, gated: Gated, targets: Targets
) -> None:
    gated.let(8)
    for number in range(8):
        driver.run(number)
    driver.coordinator.close()
    assert checkpoints(driver, CheckpointCommitted) == list(range(8))
    assert [row["id"] // 10 for row in targets["facts"].visible] == [
        number // 10 for number in range(80)
    ]


def test_h48_a_driver_that_dies_with_several_decided_leaves_them_to_recovery_which_commits_the_oldest_first(  # noqa: E501
    driver: Driver, targets: Targets, another: Another
) -> None:
    driver.run(0)
    driver.run(1)
    # The driver is dead: its thread hangs in a commit, and never gets further.
    second = another().recover()
    assert [row["id"] // 10 for row in targets["facts"].visible] == [0] * 10 + [1] * 10
    second.run(2)
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(30))


def test_a_declined_attempt_is_closed_when_nothing_is_left_to_commit(
    driver: Driver, gated: Gated, targets: Targets
) -> None:
    """A fence would wait for pieces that are prepared and about to be committed."""

    def fail(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        raise DeclinedError("no")

    driver.run(0)
    gated.fenced_over.clear()
    thread, errors = in_thread(lambda: driver.run(1, fail))
    gated.has_begun()
    assert gated.fenced_over == []
    gated.let()
    ends(thread)
    assert [type(error) for error in errors] == [DeclinedError]
    assert gated.fenced_over == [set()]
    assert visible(targets["facts"]) == list(range(10))
    assert targets["facts"].prepared == targets["lake"].prepared == {}


def test_a_job_that_stops_while_a_sink_is_down_leaves_the_attempt_and_the_commits_to_recovery(
    driver: Driver, gated: Gated, targets: Targets, another: Another
) -> None:
    def fail(pending: PendingCheckpoint) -> None:
        driver.write(pending)
        raise DeclinedError("no")

    gated.down = True
    driver.run(0)
    gated.has_begun()
    driver.context.stopping.set()
    gated.fenced_over.clear()
    thread, errors = in_thread(lambda: driver.run(1, fail))
    ends(thread)
    assert [type(error) for error in errors] == [DeclinedError]
    assert gated.fenced_over == []
    assert {key[3] for key in targets["facts"].prepared} >= {0}
    driver.coordinator.close()
    another().recover()
    assert visible(targets["facts"]) == visible(targets["lake"]) == list(range(10))
    assert targets["facts"].prepared == targets["lake"].prepared == {}


def test_a_query_that_has_ended_waits_for_its_commits_as_long_as_it_takes(
    driver: Driver, gated: Gated, targets: Targets
) -> None:
    gated.down = True
    driver.run(0)
    gated.has_begun()
    thread, errors = in_thread(lambda: driver.coordinator.close(retry=True))
    for _ in range(5):
        gated.has_begun()
    assert thread.is_alive()
    gated.down = False
    gated.let()
    ends(thread)
    assert errors == []
    assert visible(targets["facts"]) == list(range(10))


def test_a_job_that_stops_commits_what_can_be_committed(
    driver: Driver, gated: Gated, targets: Targets
) -> None:
    for number in (0, 1, 2):
        driver.run(number)
    gated.let(3)
    driver.coordinator.close()
    assert visible(targets["facts"]) == list(range(30))


def test_h1_a_loss_found_by_a_queued_commit_stops_the_job_by_name(
    driver: Driver, gated: Gated, targets: Targets
) -> None:
    driver.run(0)
    gated.has_begun()
    targets["facts"].prepared.clear()
    gated.let()
    # by the next checkpoint, or by the one that has to wait
    with pytest.raises(LostCommittableError):
        run_all(driver, (1, 2, 3))
    assert isinstance(driver.coordinator.failure, LostCommittableError)
    assert checkpoints(driver, CheckpointCommitted) == []


def test_a_query_that_waits_for_records_is_notified_of_a_failure(
    another: Another, gated: Gated, targets: Targets
) -> None:
    reported = threading.Event()
    behind = CommitQueue(plain_thread, reported.set)

    def fail() -> bool:
        raise LostCommittableError("gone")

    behind.submit(fail)
    assert reported.wait(PATIENCE_S)
    assert isinstance(behind.failure, LostCommittableError)
    with pytest.raises(LostCommittableError):
        behind.wait(0)
    behind.close()


def test_a_checkpoint_that_is_asked_for_again_waits_until_it_is_committed(
    driver: Driver, gated: Gated, targets: Targets
) -> None:
    driver.run(0)
    newest = driver.coordinator.newest()
    assert newest is not None
    thread, errors = in_thread(lambda: driver.coordinator.replay(newest, None))
    gated.has_begun()
    thread.join(A_WHILE_S)
    gated.let(2)
    ends(thread)
    assert errors == []
    assert len(gated.threads) == 1
    assert checkpoints(driver, CheckpointCommitted) == [0]
    assert visible(targets["facts"]) == list(range(10))


class Listener:
    """Notes what it hears; detects two notifications at once."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self._inside = threading.Lock()

    def _hear(self, what: str, checkpoint: int) -> None:
        assert self._inside.acquire(blocking=False), "notified of two things at once"
        self.heard.append((what, checkpoint))
        self._inside.release()

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        self._hear("complete", checkpoint)

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        self._hear("aborted", checkpoint)

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        self._hear("subsumed", checkpoint)


def test_listeners_hear_of_each_checkpoint_once_and_in_order(
    another: Another, targets: Targets
) -> None:
    listener = Listener()
    driver = another(listeners=[listener], options={"checkpoint.max_concurrent": 3}).recover()
    for number in range(20):
        driver.run(number)
    driver.coordinator.close()
    assert [number for what, number in listener.heard if what == "complete"] == list(range(20))
    assert [number for what, number in listener.heard if what == "subsumed"] == list(range(19))


def test_no_state_is_taken_while_a_listener_hears(another: Another, targets: Targets) -> None:
    hearing, taken = threading.Event(), threading.Event()
    overlaps: list[bool] = []

    class Slow(Listener):
        def notify_checkpoint_complete(self, checkpoint: int) -> None:
            hearing.set()
            overlaps.append(checkpoint == 0 and taken.wait(A_WHILE_S))

    def snapshot(number: int, frozen: object) -> OperatorStateFields:
        if number == 1:
            taken.set()
        return {}

    driver = another(listeners=[Slow()], options={"checkpoint.max_concurrent": 2}).recover()
    driver.coordinator._snapshot = snapshot
    driver.run(0)
    assert hearing.wait(PATIENCE_S)
    driver.run(1)
    driver.coordinator.close()
    assert overlaps == [False, False]


# -- the log, when two threads write it ------------------------------------------------------------


class Held(LocalStorage):
    """Stops in the creation of one kind of record until it is let go on."""

    def __init__(self, root: Path, kind: bytes) -> None:
        super().__init__(root)
        self.kind = kind
        self.held, self.go = threading.Event(), threading.Event()
        self.unclear = False

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        if name.startswith("log/") and self.kind in data:
            self.held.set()
            assert self.go.wait(PATIENCE_S)
            if self.unclear:
                raise UnclearOutcomeError("reply lost")
        super().create(name, data, crash_points)


def test_a_fold_keeps_a_decision_that_comes_in_between(
    tmp_path: Path, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Held(tmp_path / "job", b"SUBSUMED")
    driver = another(storage=storage, options={"checkpoint.max_concurrent": 2}).recover()
    store = driver.context.store
    for number in range(3):
        driver.run(number)
    driver.coordinator._commit_queue.wait(0)
    with monkeypatch.context() as patch:
        patch.setattr("twophase.state.checkpoints.store._FOLD_AT", 1)
        thread, errors = in_thread(store.fold)
        assert storage.held.wait(PATIENCE_S)
    decider, refused = in_thread(lambda: driver.run(3))
    storage.go.set()
    ends(thread)
    ends(decider)
    driver.coordinator.close()
    assert errors == refused == []
    found = JobLog(LocalStorage(tmp_path / "job"), JOB).read()
    assert found.decisions[-1].checkpoint == 3


def test_while_a_decision_is_in_doubt_the_thread_that_commits_writes_nothing(
    tmp_path: Path, another: Another, targets: Targets, gated: Gated
) -> None:
    """COMMITTED at the place of a decision that may be there would settle what nobody knows."""
    storage = Held(tmp_path / "job", b'"checkpoint":1')
    storage.unclear = True
    driver = another(
        storage=storage, sinks={"facts": gated}, options={"checkpoint.max_concurrent": 2}
    ).recover()
    driver.run(0)
    storage.go.set()
    with pytest.raises(InDoubtError):
        driver.run(1)
    gated.let()
    driver.coordinator.close()
    assert isinstance(driver.coordinator.failure, InDoubtError)
    assert checkpoints(driver, CheckpointCommitted) == checkpoints(driver, CheckpointDeclined) == []
    second = another().recover()
    assert visible(targets["facts"]) == list(range(10))
    assert [found.committed for found in second.history.decisions] == [True]
