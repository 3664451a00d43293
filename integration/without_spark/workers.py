"""Worker processes of a plain driver: what Spark's Python daemon and its workers are to a real one.

    driver ── socket ── daemon, forked while the driver had one thread
      └── a socket for each task ── worker, forked by the daemon, one task each

In a chained job a worker writes the rows of a range to all sinks (`twophase.spark.batch.chain`).

A worker gets the writers pickled as Spark would ship them, with the sink and the transaction in
them, and sends the committable back as the text that travels in Spark's result row. It outlives its
driver until it has nobody to answer to, and a driver that cancels an attempt kills its workers hard
and waits until they are gone.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pyarrow as pa
from pyspark import cloudpickle

from integration.without_spark.source import SCHEMA
from twophase.contract.committable import Committable
from twophase.contract.source import RangeReader
from twophase.errors import CheckpointExpiredError
from twophase.internals import failpoints
from twophase.internals.json_values import from_json, to_json
from twophase.spark.batch.chain import Chain, Link
from twophase.spark.batch.spark_errors import declined
from twophase.spark.batch.writer_task import WriterTask
from twophase.testing.parent_death import die_with_parent
from twophase.testing.plain_host import Done, Task, TaskRows


class WorkerError(Exception):
    """What failed in a worker, as text: more does not travel from Spark's workers either."""


@dataclass
class _Running:
    tasks: Sequence[Task]
    pid: int


class _GivenRows(RangeReader[Any]):
    """Stands for the source of a chain: its ranges are rows."""

    def read(self, item: TaskRows, *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        """See `RangeReader.read`."""
        assert not again
        yield from item()


class Workers:
    """Runs tasks. Make it while the process has a single thread.

    Attributes:
        armed: the failpoints of the workers.
        chained: whether one worker writes the rows of a range to all sinks, as in a chain.
        first: the sink whose tasks have ended, and which has acknowledged, before the others begin;
            empty for all at once.
    """

    def __init__(self) -> None:
        self.armed = ""
        self.chained = False
        self.first = ""
        self._running: dict[Connection, _Running] = {}
        self._control, theirs = socket.socketpair()
        sys.stdout.flush()
        self._daemon = os.fork()
        if self._daemon == 0:
            self._control.close()
            _serve(theirs)
        theirs.close()

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        """Run the tasks, side by side unless a sink is to be the first."""
        first = [task for task in tasks if task.sink == self.first]
        others = [task for task in tasks if task.sink != self.first]
        for some in filter(None, (first, others)):
            self._run(some, timeout_s, stopping, done)

    def _run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        """Run tasks side by side, and `done` as each ends; raise the first failure when no
        task runs any more.
        """
        running = self._running = {}
        deadline_s = time.monotonic() + timeout_s
        try:
            for dealt in self._dealt(tasks):
                connection = self._start(dealt)
                running[connection] = _Running(dealt, _first_word(connection))
            if stopping.is_set():
                self.cancel()
            while running:
                ended = wait([*running], max(0.0, deadline_s - time.monotonic()))
                if not ended:
                    raise CheckpointExpiredError(f"The tasks did not end within {timeout_s:g} s.")
                for one in ended:
                    assert isinstance(one, Connection)
                    pieces = _result(one)
                    for task, piece in zip(running.pop(one).tasks, pieces, strict=True):
                        done(task, piece)
                    one.close()
        except BaseException as error:
            _cancel(running)
            if isinstance(error, WorkerError):
                transaction = tasks[0].transaction
                what = f"Checkpoint {transaction.checkpoint} ({transaction.attempt})"
                raise declined(error, what) from error
            raise

    def cancel(self) -> None:
        """See `twophase.testing.plain_host.Workers`."""
        for worker in [*self._running.values()]:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the daemon, which has no task any more."""
        self._control.close()
        os.waitpid(self._daemon, 0)

    def _dealt(self, tasks: Sequence[Task]) -> Sequence[Sequence[Task]]:
        """Deal the tasks to workers: each one of its own, or those of a range to one."""
        ranges = defaultdict[int, list[Task]](list)
        for number, task in enumerate(tasks):
            ranges[task.subtask.index if self.chained else number].append(task)
        return [*ranges.values()]

    def _start(self, tasks: Sequence[Task]) -> Connection:
        ours, theirs = Pipe()
        socket.send_fds(self._control, [b"t"], [theirs.fileno()])
        theirs.close()
        ours.send_bytes(cloudpickle.dumps((self.armed, self.chained, tasks)))
        return ours


def _serve(control: socket.socket) -> NoReturn:
    """The daemon: a worker for each socket that comes, until the driver is gone."""
    while True:
        word, fds, _, _ = socket.recv_fds(control, 1, 1)
        _reap()
        if not word:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            _work(Connection(fds[0]))
        os.close(fds[0])


def _work(connection: Connection) -> NoReturn:
    """A worker: one task, or those of a chain."""
    die_with_parent()
    try:
        connection.send_bytes(str(os.getpid()).encode())
        armed, chained, tasks = pickle.loads(connection.recv_bytes())
        failpoints.arm(armed)
        try:
            pieces = _write_chained(tasks) if chained else [_write(*tasks)]
            texts = [json.dumps(to_json(piece)) if piece else None for piece in pieces]
            result: dict[str, Any] = {"committables": texts}
        except Exception:  # noqa: BLE001 carried to the driver, which raises it
            result = {"error": traceback.format_exc()}
        connection.send_bytes(json.dumps(result).encode())
    except (BrokenPipeError, ConnectionResetError, EOFError):
        os._exit(1)  # the driver is gone
    except BaseException:  # noqa: BLE001 printed; nobody is above
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _write(task: Task) -> Committable | None:
    writer = WriterTask(task.writers, task.transaction)
    return writer.write(iter(task.rows()), task.subtask)


def _write_chained(tasks: Sequence[Task]) -> Sequence[Committable | None]:
    """Read the range of some tasks once, and write it to the sink of each."""
    columns = tuple(range(len(SCHEMA)))
    links = [Link(task.sink, columns, SCHEMA, task.writers, task.transaction) for task in tasks]
    subtask, rows = tasks[0].subtask, tasks[0].rows
    chain = Chain(_GivenRows(), [rows] * (subtask.index + 1), again=False, begun=True, links=links)
    pieces: list[Committable | None] = []
    chain.write(subtask, pieces)
    return pieces


def _first_word(connection: Connection) -> int:
    return int(connection.recv_bytes())


def _result(connection: Connection) -> Sequence[Committable | None]:
    try:
        result = json.loads(connection.recv_bytes())
    except EOFError:
        raise WorkerError("a worker was lost") from None
    if "error" in result:
        raise WorkerError(result["error"])
    return [
        None if text is None else from_json(Committable, json.loads(text), "A result")
        for text in result["committables"]
    ]


def _cancel(running: dict[Connection, _Running]) -> None:
    """Kill the workers that still run, and wait until they are gone; one that has ended has
    closed its socket.
    """
    for connection, worker in running.items():
        if not connection.poll():
            os.kill(worker.pid, signal.SIGKILL)
    for connection in running:
        while True:
            try:
                connection.recv_bytes()
            except (EOFError, ConnectionResetError):
                break


def _reap() -> None:
    """Take the workers that have ended off the process table."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return
