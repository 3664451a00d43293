"""A running job is stopped with a savepoint, and something stands in the way."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import pytest

from harness.beginning_world import BeginningWorld
from harness.folder_sink import FolderWriters, OpenFolderSink
from harness.plain_job import PlainJob
from harness.savepoint_world import restoring
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import (
    DeclinedError,
    SavepointError,
    SavepointUnfinishedError,
    TwoPhaseError,
)
from twophase.events import CheckpointDeclined
from twophase.ids import Attempt
from twophase.operations.savepoint.format import SavepointWriter
from twophase.operations.savepoint.make import SavepointMaker, open_savepoint
from twophase.operations.savepoint.manifest import Manifest
from twophase.state.journal.history import History

pytestmark = pytest.mark.part("runtime")

_DEADLINE_S = 30


@pytest.fixture
def world(tmp_path: Path) -> BeginningWorld:
    return BeginningWorld(tmp_path)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.005)


def decided(world: BeginningWorld) -> int:
    """How many checkpoints the job's log knows as decided, or has subsumed."""
    history = world.history() if (world.root / "job" / "log").exists() else History()
    newest = history.newest(history.lineage.id) if history.lineage else None
    return newest.checkpoint + 1 if newest else 0


def under_way(job: PlainJob) -> int | None:
    """The number of the micro-batch that the job is in."""
    run = job.engine._run
    assert run is not None
    return run.gate.number


def ends(future: Future[str], within_s: float) -> bool:
    """Return whether it ends in time, with a result or an error."""
    deadline_s = time.monotonic() + within_s
    while not future.done() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return future.done()


class Down(OpenFolderSink):
    """Answers to no commit while `is_up` is not set."""

    is_up = Event()

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        if self.is_up.is_set():
            return super().commit(requests)
        return [RetryLater("down") for _ in requests]


@pytest.fixture
def lake_is_up(world: BeginningWorld) -> Iterator[Event]:
    Down.is_up.clear()
    world.kinds["lake"] = Down
    yield Down.is_up
    Down.is_up.set()


@pytest.mark.parametrize(
    "max_concurrent",
    [
        1,
        2,
    ],
)
def test_a_job_is_saved_while_a_sink_is_down(
    world: BeginningWorld, lake_is_up: Event, threads: ThreadPoolExecutor, max_concurrent: int
) -> None:
    """A sink is down, and I stop the job with a savepoint: it stops, and says that the savepoint is
    unfinished. When the sink is back it is finished, and restored.
    """
    job = PlainJob(world, 4, options={"checkpoint.max_concurrent": max_concurrent}, forever=True)
    job.start()
    # one that cannot be committed, or the one that waits until another one is
    wait_for(lambda: under_way(job) == (0 if max_concurrent == 1 else max_concurrent))
    wait_for(lambda: decided(world) == max_concurrent)
    path = world.root / "saved"
    stopping = threads.submit(job.savepoints.stop, str(path))
    try:
        assert ends(stopping, 10)
    finally:
        lake_is_up.set()
    with pytest.raises(SavepointUnfinishedError) as caught:
        stopping.result(_DEADLINE_S)
    assert str(path) in caught.value.remedy
    assert not job.engine.is_active
    world.finish(path)
    PlainJob(world, 4, "again", restoring(path, "refuse")).run()
    assert world.ids() == [[*range(40)]] * 2


def was_declined(job: PlainJob) -> bool:
    return any(isinstance(event, CheckpointDeclined) for event in job.events)


@pytest.mark.parametrize("tolerable", [0, 1])
def test_a_job_is_saved_while_a_sink_that_takes_no_rows_either_is_down(
    world: BeginningWorld, lake_is_up: Event, threads: ThreadPoolExecutor, tolerable: int
) -> None:
    """A server is down: a decided checkpoint waits for it, and it takes no further rows. I stop the
    job with a savepoint: it does not wait for the server.
    """

    class TakesOneBatch(Down):
        taken = 0

        def writers(self) -> FolderWriters:
            if self.taken and not self.is_up.is_set():
                raise DeclinedError("down")
            TakesOneBatch.taken += 1
            return super().writers()

    world.kinds["lake"] = TakesOneBatch
    options = {"checkpoint.max_concurrent": 2, "checkpoint.tolerable_failures": tolerable}
    job = PlainJob(world, 4, options=options, forever=True)
    job.start()
    wait_for(lambda: was_declined(job))
    path = world.root / "saved"
    stopping = threads.submit(job.savepoints.stop, str(path))
    try:
        assert ends(stopping, 10)
    finally:
        lake_is_up.set()
    with pytest.raises(SavepointUnfinishedError):
        stopping.result(_DEADLINE_S)
    assert not job.engine.is_active
    world.finish(path)
    PlainJob(world, 4, "again", restoring(path, "refuse")).run()
    assert world.ids() == [[*range(40)]] * 2


class Declines:
    """The writers of a sink that takes no rows."""

    def __call__(self, *_: object) -> NoReturn:
        raise DeclinedError("a hiccup")


@dataclass(frozen=True)
class DeclinesBehind:
    """The writers of a sink that takes no rows, and says so when another sink is ahead of it."""

    root: Path

    def __call__(self, *_: object) -> NoReturn:
        wait_for(lambda: bool(BeginningWorld(self.root).history().sink_decisions))
        raise DeclinedError("down")


def test_a_job_whose_sink_that_is_ahead_is_down_is_stopped_without_a_savepoint(
    world: BeginningWorld, lake_is_up: Event, threads: ThreadPoolExecutor
) -> None:
    """One sink is ahead of the other and cannot commit, and the other takes no rows. I stop the job
    with a savepoint: it says that none can be made, and does not wait for the server.
    """

    class TakesNothing(OpenFolderSink):
        def writers(self) -> Any:
            return super().writers() if lake_is_up.is_set() else DeclinesBehind(world.root)

    world.sinks, world.kinds["facts"] = ("lake", "facts"), TakesNothing
    lake_is_up.set()
    PlainJob(world, 1).run()
    lake_is_up.clear()
    job = PlainJob(world, 4, options={"checkpoint.mode": "at_least_once"}, forever=True)
    job.start()
    wait_for(lambda: was_declined(job))
    stopping = threads.submit(job.savepoints.stop, str(world.root / "saved"))
    try:
        assert ends(stopping, 10)
    finally:
        lake_is_up.set()
    with pytest.raises(SavepointError, match="'lake'"):
        stopping.result(_DEADLINE_S)
    assert not job.engine.is_active
    PlainJob(world, 4).run()
    assert world.ids() == [[*range(40)]] * 2


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_a_micro_batch_that_is_tried_again_in_place_is_decided_first(
    world: BeginningWorld, threads: ThreadPoolExecutor, mode: str
) -> None:
    """All sinks answer, one has declined an attempt, which is tolerated. I stop the job with a
    savepoint while that attempt is being closed: it is tried again, and saved.
    """
    closes, go_on = Event(), Event()

    class DeclinesOnce(OpenFolderSink):
        asked = 0

        def writers(self) -> Any:
            DeclinesOnce.asked += 1
            return Declines() if self.asked == 2 else super().writers()

        def fence(self, attempt: Attempt) -> None:
            if self.asked == 2:
                closes.set()
                assert go_on.wait(_DEADLINE_S)
            super().fence(attempt)

    world.sinks, world.kinds["facts"] = ("lake", "facts"), DeclinesOnce
    options = {"checkpoint.mode": mode, "checkpoint.tolerable_failures": 1}
    job = PlainJob(world, 2, options=options, forever=True)
    job.start()
    assert closes.wait(_DEADLINE_S)
    path = world.root / "saved"
    stopping = threads.submit(job.savepoints.stop, str(path))
    try:
        assert not ends(stopping, 0.5)
    finally:
        go_on.set()
    assert stopping.result(_DEADLINE_S) == str(path)
    assert world.ids() == [[*range(20)]] * 2


def test_a_job_with_nothing_to_save_is_not_stopped_for_it(world: BeginningWorld) -> None:
    """My job has read nothing yet, and I stop it with a savepoint: it says so, and runs on."""
    job = PlainJob(world, 0, forever=True)
    job.start()
    path = world.root / "saved"
    try:
        with pytest.raises(SavepointError, match="no checkpoint of the current lineage"):
            job.savepoints.stop(str(path))
        assert job.engine.is_active
        assert not path.exists()
    finally:
        job.engine.stop()
    PlainJob(world, 2).run()
    assert world.ids() == [[*range(20)]] * 2


def test_a_restored_job_is_stopped_with_a_savepoint_before_its_first_checkpoint(
    world: BeginningWorld,
) -> None:
    """I restored a savepoint, nothing is to be read, and I stop the job with a savepoint: it is
    made of what was restored.
    """
    PlainJob(world, 2).run()
    world.drive(2)
    job = PlainJob(world, 2, "again", restoring(world.make(), "refuse"), forever=True)
    job.start()
    path = world.root / "second"
    assert job.savepoints.stop(str(path)) == str(path)
    assert not job.engine.is_active
    PlainJob(world, 4, "third", restoring(path, "refuse")).run()
    assert world.ids() == [[*range(40)]] * 2


def test_a_job_that_pauses_between_two_checkpoints_is_saved_at_once(
    world: BeginningWorld, threads: ThreadPoolExecutor
) -> None:
    """My job pauses an hour between two checkpoints, and I stop it with a savepoint in the pause:
    it does not wait for the end of the hour.
    """
    job = PlainJob(world, 2, options={"checkpoint.min_pause": "1 h"}, forever=True)
    job.start()
    wait_for(lambda: any("checkpoint.min_pause" in str(event) for event in job.events))
    path = world.root / "saved"
    stopping = threads.submit(job.savepoints.stop, str(path))
    try:
        assert ends(stopping, 10)
    finally:
        job.engine.stop()
    assert stopping.result(_DEADLINE_S) == str(path)
    PlainJob(world, 4, "again", restoring(path, "refuse")).run()
    assert world.ids() == [[*range(40)]] * 2


def test_a_program_that_waits_for_the_job_ends_after_the_savepoint(
    world: BeginningWorld, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """My program waits for the job, and a signal handler's thread stops it with a savepoint: when
    the wait is over, the savepoint is there.
    """
    begun, go_on = Event(), Event()
    make = SavepointMaker.make_stopped

    def held(maker: SavepointMaker, *args: object, **given: object) -> object:
        begun.set()
        assert go_on.wait(_DEADLINE_S)
        return make(maker, *args, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(SavepointMaker, "make_stopped", held)
    job = PlainJob(world, 2, forever=True)
    job.start()
    wait_for(lambda: decided(world) == 2)
    path = world.root / "saved"
    stopping = threads.submit(job.savepoints.stop, str(path))
    waiting = threads.submit(job.engine.await_termination, _DEADLINE_S)
    try:
        assert begun.wait(_DEADLINE_S)
        assert not ends(waiting, 1)  # type: ignore[arg-type]
    finally:
        go_on.set()
    assert waiting.result(_DEADLINE_S)
    assert open_savepoint(str(path)).is_committed
    stopping.result(_DEADLINE_S)


class Disk:
    """Fails below a folder as a disk does.

    Args:
        folder: everything below it fails.
        number: of the error.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._link = os.link

    def __call__(self, source: str | Path, target: str | Path, **given: object) -> None:
        if Path(target).absolute().is_relative_to(self._folder):
            raise OSError(self._number, os.strerror(self._number), str(target))
        self._link(source, target, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPERM, errno.EOPNOTSUPP], ids=os.strerror)
def test_a_savepoint_that_cannot_be_written_says_what_has_become_of_the_job(
    world: BeginningWorld, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """I stop the job with a savepoint on a disk that is full, or whose file system has no hard
    links: either it runs on, or it says that it has stopped. A savepoint elsewhere is made.
    """
    job = PlainJob(world, 2, forever=True)
    job.start()
    wait_for(lambda: decided(world) == 2)
    path = world.root / "saved"
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", Disk(path, number))
        with pytest.raises(TwoPhaseError) as caught:
            job.savepoints.stop(str(path))
    said = str(caught.value)
    assert caught.value.remedy
    assert job.engine.is_active or "stopped" in said
    assert "as it was" not in said or job.engine.is_active
    if number != errno.ENOSPC:
        assert "hard link" in said
    job.engine.stop()
    assert job.engine.await_termination(_DEADLINE_S)
    elsewhere = world.make("elsewhere")
    PlainJob(world, 4, "again", restoring(elsewhere, "refuse")).run()
    assert world.ids() == [[*range(40)]] * 2


def test_a_savepoint_that_is_not_made_says_that_the_job_has_stopped(
    world: BeginningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps state, and has not finished the micro-batch that the job stops after."""
    job = PlainJob(world, 2, forever=True)
    job.start()
    wait_for(lambda: decided(world) == 2)
    make = SavepointMaker.make_stopped

    def unfinished(maker: SavepointMaker, writer: SavepointWriter) -> Manifest:
        [folder] = (world.root / "job" / "spark").iterdir()
        (folder / "state" / "0").mkdir(parents=True)
        shutil.rmtree(folder / "commits", ignore_errors=True)
        return make(maker, writer)

    monkeypatch.setattr(SavepointMaker, "make_stopped", unfinished)
    with pytest.raises(SavepointError, match=r"Spark has not finished .* The job has stopped[.]"):
        job.savepoints.stop(str(world.root / "saved"))
    assert not job.engine.is_active
    assert not (world.root / "saved").exists()
