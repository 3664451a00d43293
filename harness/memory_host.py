"""The plain host for sinks in memory: its writers run in the driver, its folders are in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from twophase.options.job_options import JobOptions
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.entries import Decision, Lineage
from twophase.testing.plain_host import (
    Done,
    ListedRows,
    PlainFolder,
    PlainHost,
    Rows,
    Task,
    Workers,
)

NO_ROWS = ListedRows([[pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64())})]])
"""For a host that starts no query."""


class InThisProcess:
    """Runs tasks one after the other. See `twophase.testing.plain_host.Workers`."""

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        """See `Workers.run`."""
        for task in tasks:
            done(task, task.run())

    def cancel(self) -> None:
        """See `Workers.cancel`: a task ends by itself."""


class MemoryFolder(PlainFolder):
    """See `twophase.testing.plain_host.PlainFolder`.

    Args:
        lineage: the lineage it belongs to.
    """

    def __init__(self, lineage: Lineage) -> None:
        self._before = self._finished = lineage.first_checkpoint - 1
        self._ends: list[str] = []

    def prepare(self, newest: Decision | None) -> None:
        """See `LineageFolder.prepare`."""

    def finish(self, newest: Decision | None) -> bool:
        """See `LineageFolder.finish`: no micro-batch is noted, so that the newest runs again."""
        return False

    def offsets(self, batch: int) -> FrozenOffsets:
        """See `LineageFolder.offsets`."""
        index = batch - self._before - 1
        return FrozenOffsets((self._ends[index - 1] if index else None,), (self._ends[index],))

    def finished(self) -> int:
        """See `LineageFolder.finished`."""
        return self._finished

    def planned(self) -> int:
        """See `PlainFolder.planned`."""
        return self._before + len(self._ends)

    def plan(self, end: str) -> int:
        """See `PlainFolder.plan`."""
        self._ends.append(end)
        return self.planned()

    def note_finished(self, batch: int) -> None:
        """See `PlainFolder.note_finished`."""
        self._finished = batch

    def end(self) -> str | None:
        """See `PlainFolder.end`."""
        return self._ends[-1] if self._ends else None


class MemoryHost(PlainHost):
    """See above.

    Args:
        job: the job's name.
        options: the job's options.
        rows: the input.
        workers: run the tasks.
        given: as `PlainHost` takes it.

    Attributes:
        folders: by lineage. Give those of a driver that has died to the next one.
    """

    def __init__(
        self,
        job: str,
        options: JobOptions,
        rows: Rows,
        workers: Workers | None = None,
        **given: Any,
    ) -> None:
        super().__init__(job, options, rows, workers or InThisProcess(), **given)
        self.folders: dict[str, MemoryFolder] = {}

    def folder(self, lineage: Lineage) -> MemoryFolder:
        """See `Host.folder`."""
        return self.folders.setdefault(lineage.id, MemoryFolder(lineage))
