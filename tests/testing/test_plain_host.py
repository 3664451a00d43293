"""The plain host, as an author of a sink uses it: a job whose workers are processes."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.folder_sink import FolderSink, FolderTarget
from twophase.engine.engine import Engine
from twophase.errors import CheckpointExpiredError, DeclinedError
from twophase.events import Event, JobRestarting
from twophase.ids import Subtask
from twophase.internals import failpoints
from twophase.testing.harness import transaction_id
from twophase.testing.plain_host import ForkedWorkers, ListedRows, Task, TaskRows, plain_engine

SCHEMA = pa.schema([("id", pa.int64())])
TASKS, ROWS = 2, 5


def batches(count: int) -> list[list[pa.RecordBatch]]:
    return [
        [ids(range(first, first + ROWS)) for first in (number * 10, number * 10 + ROWS)]
        for number in range(count)
    ]


def ids(numbers: Iterable[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": [*numbers]}, schema=SCHEMA)


class Job:
    """A job on a folder, with targets that outlive it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events: list[Event] = []

    def engine(self, rows: ListedRows, **options: Any) -> Engine:
        given = {"checkpointLocation": str(self.root / "job"), "restart.strategy": "none"}
        sinks = {name: FolderSink(self.root / name) for name in ("facts", "lake")}
        return plain_engine("orders", sinks, rows, given | options, self.events.append)

    def run(self, rows: ListedRows, **options: Any) -> None:
        engine = self.engine(rows, **options)
        engine.start()
        assert engine.await_termination(60)

    def is_exact(self, count: int) -> bool:
        targets = [FolderTarget(self.root / name) for name in ("facts", "lake")]
        found = [sorted(row["id"] for row in target.rows()) for target in targets]
        return found == [[*range(count * 10)]] * 2 and not any(one.prepared() for one in targets)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_restart_goes_on_with_the_next_micro_batch(job: Job) -> None:
    job.run(ListedRows(batches(2)))
    assert job.is_exact(2)
    job.run(ListedRows(batches(3)))
    assert job.is_exact(3)


@pytest.mark.parametrize("point", ["C02", "C06", "C11", "C13", "C14", "C15", "C16"])
def test_a_driver_that_is_killed_is_followed_by_one_that_ends_its_work(
    job: Job, point: str
) -> None:
    child = os.fork()
    if child == 0:
        failpoints.arm(f"{point}=kill@2")
        job.run(ListedRows(batches(3)))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not job.is_exact(3)
    job.run(ListedRows(batches(3)))
    assert job.is_exact(3)


class Once(ListedRows):
    """One task of the first attempt does something else.

    Args:
        batches: as `ListedRows` takes them.
        mark: a file that is there when it has been done.
        fault: what it does.
    """

    def __init__(self, batches: list[list[pa.RecordBatch]], mark: Path, fault: str) -> None:
        super().__init__(batches)
        self._mark = mark
        self._fault = fault

    def tasks(self, start: str | None, end: str | None) -> list[TaskRows]:
        first, *others = super().tasks(start, end)
        return [lambda: self._faulty(first), *others]

    def _faulty(self, rows: TaskRows) -> Iterator[pa.RecordBatch]:
        yield from rows()
        if self._mark.exists():
            return
        self._mark.touch()
        match self._fault:
            case "raise":
                raise ValueError("these rows are not to be had")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                signal.pause()


@pytest.mark.parametrize(
    ("fault", "said"),
    [("raise", "1 of 4 tasks failed: .*these rows are not"), ("die", "a worker died")],
)
def test_a_failed_task_declines_the_attempt(job: Job, fault: str, said: str) -> None:
    rows = Once(batches(2), job.root / "mark", fault)
    with pytest.raises(DeclinedError, match=f"(?s){said}"):
        job.run(rows)
    job.run(rows)
    assert job.is_exact(2)


def test_a_declined_attempt_is_retried_in_place(job: Job) -> None:
    rows = Once(batches(2), job.root / "mark", "die")
    job.run(rows, **{"checkpoint.tolerable_failures": 1})
    assert job.is_exact(2)
    assert not any(isinstance(event, JobRestarting) for event in job.events)


def test_a_task_that_takes_too_long_is_killed(job: Job) -> None:
    rows = Once(batches(2), job.root / "mark", "pause")
    with pytest.raises(CheckpointExpiredError):
        job.run(rows, **{"checkpoint.timeout": "1 s"})
    job.run(rows)
    assert job.is_exact(2)


def test_a_stop_kills_the_tasks(job: Job) -> None:
    rows = Once(batches(2), job.root / "mark", "pause")
    engine = job.engine(rows)
    engine.start()
    while not (job.root / "mark").exists():
        assert not engine.await_termination(0.01)
    assert engine.stop(60)
    assert engine.error is None
    job.run(rows)
    assert job.is_exact(2)


def test_a_task_that_is_begun_while_the_job_stops_is_killed_too() -> None:
    """The call that cancels tasks was too early for it."""
    stopping = threading.Event()
    stopping.set()
    transaction = transaction_id()
    task = Task("facts", transaction, Subtask(0, 1), writers=_never, rows=_pause)
    with pytest.raises(DeclinedError, match="a worker died"):
        ForkedWorkers().run([task], 60, stopping, _never)


def test_a_worker_leaves_what_the_driver_has_to_clean_up_to_the_driver() -> None:
    """A client that is destroyed where its threads are not ends its process."""

    class Client:
        def __init__(self) -> None:
            self.itself = self
            self.owner = os.getpid()

        def __del__(self) -> None:
            if os.getpid() != self.owner:
                os.kill(os.getpid(), signal.SIGKILL)

    def rows() -> Iterator[pa.RecordBatch]:
        gc.collect()
        return iter(())

    gc.disable()
    try:
        Client()  # garbage that only the collector finds
        done = list[Any]()
        task = Task("facts", transaction_id(), Subtask(0, 1), writers=_never, rows=rows)
        ForkedWorkers().run([task], 60, threading.Event(), lambda _, piece: done.append(piece))
    finally:
        gc.enable()
    assert done == [None]


def _never(*_: object) -> Any:
    raise AssertionError("called")


def _pause() -> Iterator[pa.RecordBatch]:
    signal.pause()
    yield ids([])
