"""A job over a host in memory: what is declared, what ran, and what it leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.memory_driver import SCHEMA, rows
from harness.memory_host import InThisProcess, MemoryFolder, MemoryHost
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, Sink, SinkContext
from twophase.engine.engine import Engine
from twophase.errors import DeclinedError
from twophase.events import Event, Observers
from twophase.options.job_options import JobOptions
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import FenceRecord
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemorySink, MemoryTarget, OpenMemorySink
from twophase.testing.plain_host import Done, ListedRows, Task, Workers

JOB = "orders"
STEP = 10
WAIT_S = 30


class Held(InThisProcess):
    """Holds each micro-batch until it is let go, or cancelled.

    Attributes:
        began: set by a micro-batch.
    """

    def __init__(self) -> None:
        self.began = threading.Event()
        self._over = threading.Event()
        self._cancelled = False

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        self.began.set()
        assert self._over.wait(WAIT_S)
        if self._cancelled:
            raise DeclinedError("cancelled")
        super().run(tasks, timeout_s, stopping, done)

    def cancel(self) -> None:
        self._cancelled = True
        self._over.set()

    def let_go(self) -> None:
        self._over.set()


class Failing(InThisProcess):
    """Raises errors, one a micro-batch, until none is left."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = [*errors]

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        if self._errors:
            raise self._errors.pop(0)
        super().run(tasks, timeout_s, stopping, done)


class Watched(MemorySink):
    """A sink whose steps can be held, and are counted.

    Attributes:
        before_commit: called before each commit.
        fence_errors: raised by the next fences.
        closed: how often it was closed.
    """

    def __init__(self, target: MemoryTarget) -> None:
        super().__init__(target)
        self.watched_target = target
        self.before_commit: Callable[[], object] = lambda: None
        self.fence_errors: list[Exception] = []
        self.closed = 0

    def open(self, context: SinkContext) -> OpenMemorySink:
        return _OpenWatched(self, context)


class _OpenWatched(OpenMemorySink):
    def __init__(self, declared: Watched, context: SinkContext) -> None:
        super().__init__(declared.watched_target, context.job, context.sink)
        self._declared = declared

    def fence(self, attempt: Any) -> None:
        if self._declared.fence_errors:
            raise self._declared.fence_errors.pop(0)
        super().fence(attempt)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        self._declared.before_commit()
        return super().commit(requests)

    def close(self) -> None:
        self._declared.closed += 1


class World:
    """One job, with a folder and a target that outlive its engines."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "job"
        self.target = MemoryTarget(str(root))
        self.sink = Watched(self.target)
        self.events: list[Event] = []
        self.folders: dict[str, MemoryFolder] = {}

    def engine(
        self,
        batches: int = 3,
        workers: Workers | None = None,
        sinks: Mapping[str, Sink] | None = None,
        *,
        forever: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Engine:
        given = {"checkpointLocation": str(self.folder), "restart.strategy": "none"}
        given |= options or {}
        parsed = JobOptions.parse(given, JOB)
        ids = [range(number * STEP, (number + 1) * STEP) for number in range(batches)]
        listed = ListedRows([[pa.RecordBatch.from_pylist(rows(of), SCHEMA)] for of in ids])
        host = MemoryHost(JOB, parsed, listed, workers, forever=forever)
        host.folders = self.folders
        declared = sinks if sinks is not None else {"facts": self.sink}
        return Engine(host, JOB, declared, parsed, Observers(self.events.append))

    def run(self, batches: int = 3) -> None:
        engine = self.engine(batches)
        engine.start()
        assert engine.await_termination(WAIT_S)

    def overtake(self) -> None:
        """Another driver takes the job over."""
        log = JobLog(LocalStorage(self.folder), JOB)
        log.append(FenceRecord(log.read().generation + 1))

    def history(self) -> History:
        return JobLog(LocalStorage(self.folder), JOB).read()

    def finished(self) -> list[int]:
        return [folder.finished() for folder in self.folders.values()]

    def visible(self) -> list[int]:
        return sorted(row["id"] for row in self.target.visible)

    def has_all(self, batches: int) -> bool:
        return self.visible() == [*range(batches * STEP)]

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
