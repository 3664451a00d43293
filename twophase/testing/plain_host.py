"""A host without Spark, for authors of sinks: a whole job that a test can run, kill and restart.

    rows = ListedRows([[first_batch], [second_batch]])
    engine = plain_engine("orders", {"facts": MySink(...)}, rows,
                          {"checkpointLocation": str(folder)})
    engine.start()
    engine.await_termination()

The engine is the product's: it opens the sinks, recovers, restarts and stops as with Spark. The
writers run in processes forked for each task, from what an executor gets: a pickled copy of
`OpenArrowSink.writers()`. Below `checkpointLocation` the host keeps in `plain/<lineage>`:

    offsets/<n>     where micro-batch n ends, durable before it runs
    finished/<n>    it is decided, and does not run again
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenArrowSink, Sink, SinkContext, WriterFactory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.plan import Restore
from twophase.engine.engine import Engine
from twophase.engine.host import Beginning, Handle, Plan
from twophase.engine.restart import waits_of
from twophase.errors import (
    CheckpointExpiredError,
    ConfigError,
    DeclinedError,
    StopJobError,
    TwoPhaseError,
    from_text,
)
from twophase.events import Observer, Observers
from twophase.ids import Subtask, TransactionId, new_lineage_id
from twophase.internals.clock import Clock, SystemClock
from twophase.internals.failpoints import failpoint
from twophase.internals.json_values import from_json, to_json
from twophase.options.job_options import JobOptions
from twophase.seal import share_key
from twophase.state.checkpoints.checkpoint import FrozenOffsets, OperatorStateFields
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Decision, Lineage
from twophase.state.journal.history import History
from twophase.testing.harness import write_piece

_POLL_S = 0.02

TaskRows = Callable[[], Iterable[pa.RecordBatch]]
"""Reads the rows of one task; the same ones each time."""


class Rows(Protocol):
    """The input of a job. An offset is a line of JSON; None stands before the first row.

    Attributes:
        schema: the columns.
        parallelism: the maximum number of tasks of a micro-batch.
    """

    schema: pa.Schema
    parallelism: int

    def end_after(self, start: str | None) -> str | None:
        """Return where a micro-batch ends that begins at `start`; None without new rows."""

    def tasks(self, start: str | None, end: str | None) -> Sequence[TaskRows]:
        """Return the rows of each task, of which there is at least one."""


class ListedRows:
    """Rows in memory.

    Args:
        batches: of each micro-batch, what each of its tasks writes.
    """

    def __init__(self, batches: Sequence[Sequence[pa.RecordBatch]]) -> None:
        self.schema = batches[0][0].schema
        self.parallelism = max(map(len, batches))
        self._batches = batches

    def end_after(self, start: str | None) -> str | None:
        """See `Rows.end_after`."""
        number = _next(start)
        return json.dumps({"next": number + 1}) if number < len(self._batches) else None

    def tasks(self, start: str | None, end: str | None) -> Sequence[TaskRows]:  # noqa: ARG002
        """See `Rows.tasks`."""
        return [partial(iter, [batch]) for batch in self._batches[_next(start)]]


def _next(offset: str | None) -> int:
    return int(json.loads(offset)["next"]) if offset else 0


@dataclass(frozen=True)
class Task:
    """One task of a micro-batch: writes rows to one sink.

    Attributes:
        sink: the sink's name.
        transaction: of the attempt.
        subtask: the task attempt.
        writers: of the sink.
        rows: reads the rows.
    """

    sink: str
    transaction: TransactionId
    subtask: Subtask
    writers: WriterFactory
    rows: TaskRows

    def run(self) -> Committable | None:
        """Write all rows, and pre-commit; None without rows."""
        piece = write_piece(self.writers, self.transaction, self.subtask, self.rows())
        failpoint("C03")
        failpoint("E02")
        return piece


Done = Callable[[Task, Committable | None], None]
"""Called on the driver with the result of a task."""


class Workers(Protocol):
    """Runs tasks."""

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        """Run all tasks side by side, unless the job is stopping.

        Raises:
            TwoPhaseError: one failed, was cancelled, or took too long. None runs any more.
        """

    def cancel(self) -> None:
        """End the tasks that run. Called from any thread, when `stopping` is set."""


class ForkedWorkers:
    """A process for each task, forked from the driver. If one dies, the others run to their end.

    A worker may outlive its driver, as Spark's may.
    """

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}
        self._lock = threading.Lock()
        self._environment: dict[str, str] = {}
        share_key(self._environment)

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        """See `Workers.run`."""
        deadline_s = time.monotonic() + timeout_s
        running: dict[int, Task] = {}
        errors = []
        try:
            for task in tasks:
                running[self._fork(task)] = task
            if stopping.is_set():
                self.cancel()  # the call that was to do it may have been too early
            while running:
                ended = wait(running, max(0.0, deadline_s - time.monotonic()))
                if not ended:
                    raise CheckpointExpiredError(f"The tasks did not end within {timeout_s:g} s.")
                for one in [*running.keys() & {*ended}]:
                    task = running.pop(one)
                    piece, error = self._answer(one)
                    if error:
                        errors.append(error)
                    else:
                        done(task, piece and from_json(Committable, piece, "A worker's answer"))
        except BaseException:
            self.cancel()
            for one in running:
                self._answer(one)
            raise
        if errors:
            raise _declined(errors, len(tasks))

    def cancel(self) -> None:
        """See `Workers.cancel`."""
        with self._lock:
            for pid in self._pids.values():
                os.kill(pid, signal.SIGKILL)

    def _fork(self, task: Task) -> int:
        """Start a worker; return the descriptor that its answer is read from."""
        answer, ours = os.pipe()
        pid = os.fork()
        if not pid:
            gc.freeze()  # a client of the driver that is garbage would wait for threads not here
            os.environ.update(self._environment)
            _work(task, ours)
        os.close(ours)
        with self._lock:
            self._pids[answer] = pid
        return answer

    def _answer(self, answer: int) -> tuple[Any, str]:
        """Return what a worker has answered by its end: its piece or nothing, and its error."""
        with open(answer, "rb") as stream:
            text = stream.read()
        with self._lock:  # until it is waited for, its process id is no other one's
            os.waitpid(self._pids.pop(answer), 0)
        piece, error = json.loads(text) if text else (None, "a worker died.")
        return piece, error


def _work(task: Task, answer: int) -> NoReturn:
    """Be the worker of one task."""
    sys.settrace(None)
    try:
        piece = task.run()
        found = (to_json(piece), "")
    except BaseException:  # noqa: BLE001 - the driver raises it
        found = (None, traceback.format_exc())
    os.write(answer, json.dumps(found).encode())
    os._exit(0)


def _declined(errors: Sequence[str], tasks: int) -> TwoPhaseError:
    """Return our error that a task has ended with, if there is one; first one that ends the job.

    Args:
        errors: tracebacks.
        tasks: how many there were.
    """
    ours = [error for text in errors if (error := from_text(text)) is not None]
    other = DeclinedError(f"{len(errors)} of {tasks} tasks failed: {errors[0]}")
    return min(ours, key=lambda error: error.restartable, default=other)


class PlainFolder:
    """What a query keeps of one lineage. See `twophase.engine.host.LineageFolder`.

    Args:
        path: the folder.
        lineage: the lineage it belongs to.
    """

    def __init__(self, path: Path, lineage: Lineage) -> None:
        self._path = path
        self._lineage = lineage
        self._storage = LocalStorage(path)

    def prepare(self, newest: Decision | None) -> None:
        """See `LineageFolder.prepare`: it is made with the first micro-batch."""

    def finish(self, newest: Decision | None) -> bool:
        """See `LineageFolder.finish`."""
        if newest is None or not newest.committed or self.finished() == newest.checkpoint:
            return False
        self.note_finished(newest.checkpoint)
        return True

    def offsets(self, batch: int) -> FrozenOffsets:
        """See `LineageFolder.offsets`."""
        return FrozenOffsets((self._end(batch - 1),), (self._end(batch),))

    def finished(self) -> int:
        """See `LineageFolder.finished`."""
        return self._newest("finished")

    def planned(self) -> int:
        """Return the newest micro-batch whose offsets are frozen; one before the first if none."""
        return self._newest("offsets")

    def plan(self, end: str) -> int:
        """Freeze the offsets of the next micro-batch; return its number."""
        number = self.planned() + 1
        self._storage.create(f"offsets/{number}", end.encode())
        return number

    def note_finished(self, batch: int) -> None:
        """Note a micro-batch as finished: it is decided."""
        self._storage.create(f"finished/{batch}", b"")

    def end(self) -> str | None:
        """Return where the newest micro-batch ends."""
        return self._end(self.planned())

    def _end(self, batch: int) -> str | None:
        with suppress(FileNotFoundError):
            return self._storage.read(f"offsets/{batch}").decode()
        return None

    def _newest(self, folder: str) -> int:
        names = map(int, self._storage.names(folder))
        return max(names, default=self._lineage.first_checkpoint - 1)


class FreshStart:
    """Begins a lineage unless the log has one. There is no restore.

    Args:
        first_checkpoint: of a new lineage.
    """

    restore: Restore | None = None

    def __init__(self, first_checkpoint: int = 0) -> None:
        self._first_checkpoint = first_checkpoint

    def begin(self, coordinator: CheckpointCoordinator) -> None:
        """See `Beginning.begin`."""
        if coordinator.history.lineage is None:
            first = self._first_checkpoint
            coordinator.begin_lineage(Lineage(new_lineage_id(), first_checkpoint=first))

    def initialize_states(self, coordinator: CheckpointCoordinator) -> None:
        """See `Beginning.initialize_states`: read the checkpoint that the run goes on from."""
        newest, store = coordinator.newest(), coordinator.context.store
        if newest:
            store.read(newest)

    def close(self) -> None:
        """See `Beginning.close`."""


class PlainBatch:
    """One run of a micro-batch. See `twophase.engine.host.MicroBatch`.

    Args:
        host: runs it.
        coordinator: recovered.
    """

    def __init__(self, host: PlainHost, coordinator: CheckpointCoordinator) -> None:
        self._host = host
        self._coordinator = coordinator

    def begin(self, decided: Decision | None) -> None:
        """See `MicroBatch.begin`."""

    def execute(self) -> None:
        """See `MicroBatch.execute`: there is no state."""

    def pre_commit(self, pending: PendingCheckpoint) -> None:
        """See `MicroBatch.pre_commit`: acknowledge for a sink when its last task is back."""
        [start], [end] = pending.offsets.start, pending.offsets.end
        rows = self._host.rows.tasks(start, end)
        pieces: dict[str, dict[int, Committable | None]] = defaultdict(dict)

        def done(task: Task, piece: Committable | None) -> None:
            found = pieces[task.sink]
            found[task.subtask.index] = piece
            if len(found) == len(rows):
                pending.acknowledge(task.sink, [one for _, one in sorted(found.items()) if one])

        tasks = [
            Task(sink, pending.transaction(sink), self._host.next_subtask(index), writers, one)
            for sink in pending.missing()
            for writers in [self._writers(sink)]
            for index, one in enumerate(rows)
        ]
        timeout_s, stopping = (
            self._coordinator.options.timeout_s,
            self._coordinator.context.stopping,
        )
        self._host.workers.run(tasks, timeout_s, stopping, done)

    def _writers(self, name: str) -> WriterFactory:
        sink = self._coordinator.sinks[name]
        if not isinstance(sink, OpenArrowSink):
            raise ConfigError(f"Job {self._coordinator.job!r}: sink {name!r} needs Spark.")
        return sink.writers()


class PlainQuery:
    """One run of the query. See `twophase.engine.host.Query`. The thread that waits for it runs it.

    Args:
        host: runs its micro-batches.
        coordinator: recovered.
        folder: of the lineage.
        handle: the engine's.
    """

    def __init__(
        self,
        host: PlainHost,
        coordinator: CheckpointCoordinator,
        folder: PlainFolder,
        handle: Handle,
    ) -> None:
        self.is_active = True
        self._host = host
        self._coordinator = coordinator
        self._folder = folder
        self._handle = handle
        self._stopping = threading.Event()

    def wait(self) -> None:
        """See `Query.wait`."""
        try:
            self._run()
        except Exception as error:
            if isinstance(error, StopJobError) or not self._stopping.is_set():
                raise
        finally:
            self.is_active = False

    def stop(self) -> None:
        """See `Query.stop`."""
        self._stopping.set()
        self._host.workers.cancel()

    def _run(self) -> None:
        folder, rows = self._folder, self._host.rows
        if folder.planned() > folder.finished():
            self._run_batch(folder.planned())
        while not self._stopping.is_set():
            if (end := rows.end_after(folder.end())) is not None:
                self._run_batch(folder.plan(end))
            elif self._host.forever:
                self._stopping.wait(_POLL_S)
            else:
                return

    def _run_batch(self, number: int) -> None:
        self._handle(number, PlainBatch(self._host, self._coordinator))
        self._folder.note_finished(number)


class PlainHost:
    """See `twophase.engine.host.QueryHost`. Used by one engine.

    Args:
        job: the job's name.
        options: the job's options.
        rows: the input.
        workers: run the tasks; without it, a forked process runs each.
        forever: whether the query waits for more rows when there are none, instead of ending.

    Attributes:
        clock: the machine's.
        rows: as given.
        workers: run the tasks.
        forever: as given.
    """

    def __init__(
        self,
        job: str,
        options: JobOptions,
        rows: Rows,
        workers: Workers | None = None,
        *,
        forever: bool = False,
    ) -> None:
        self.clock: Clock = SystemClock()
        self.rows = rows
        self.workers = workers or ForkedWorkers()
        self.forever = forever
        self._job = job
        self._options = options
        self._root = Path(options.checkpoint_location, "plain")
        self._attempts = 0

    def thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """See `Host.thread`."""
        return threading.Thread(target=run, name=name, daemon=True)

    def sink_context(self, sink: str) -> SinkContext:
        """See `Host.sink_context`."""
        return SinkContext(
            self._job,
            sink,
            self.rows.schema,
            self.rows.parallelism,
            max_concurrent=self._options.max_concurrent,
            waits=waits_of(self._options),
        )

    def plan(self) -> Plan:
        """See `Host.plan`."""
        return Plan(stateful=False, keeps_state=False)

    def beginning(self, context: JobContext, plan: Plan) -> Beginning:  # noqa: ARG002
        """See `Host.beginning`."""
        return FreshStart()

    def folder(self, lineage: Lineage) -> PlainFolder:
        """See `Host.folder`."""
        return PlainFolder(self._root / lineage.id, lineage)

    def delete_folders(self, history: History) -> None:
        """See `Host.delete_folders`: there is only one lineage."""

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:  # noqa: ARG002
        """See `Host.snapshot`: there is no operator state."""
        return {}

    def start(
        self,
        coordinator: CheckpointCoordinator,
        folder: PlainFolder,
        plan: Plan,  # noqa: ARG002
        handle: Handle,
    ) -> PlainQuery:
        """See `QueryHost.start`."""
        return PlainQuery(self, coordinator, folder, handle)

    def failed(self, error: BaseException) -> BaseException:
        """See `QueryHost.failed`."""
        return error

    def close(self) -> None:
        """See `QueryHost.close`."""

    def next_subtask(self, index: int) -> Subtask:
        """Return a new attempt of a task, by its place in the micro-batch."""
        self._attempts += 1
        return Subtask(index, self._attempts)


def plain_engine(
    job: str,
    sinks: Mapping[str, Sink],
    rows: Rows,
    options: Mapping[str, Any],
    *observers: Observer,
) -> Engine:
    """Return the engine of a job over this host, not started.

    Args:
        job: the job's name.
        sinks: by name, not open.
        rows: the input.
        options: of the job, `checkpointLocation` among them.
        observers: receive every event.

    Raises:
        ConfigError: an option is wrong.
    """
    parsed = JobOptions.parse(options, f"job {job!r}")
    return Engine(PlainHost(job, parsed, rows), job, sinks, parsed, Observers(*observers))
