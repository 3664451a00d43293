"""A driver to kill: the plain host over rows in memory, with faults in one checkpoint.

Armed failpoints act in checkpoint `ARMED_IN`: one is committed by then, another follows, and the
sinks subsume in it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.outcome import RetryLater
from twophase.contract.sink import (
    ArrowSink,
    CanRewind,
    CommitRequest,
    Sink,
    SinkContext,
    WriterFactory,
)
from twophase.coordinator.commit.checkpoint_completion import SUBSUME_SINKS_EVERY
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine.engine import Engine
from twophase.engine.host import Handle, MicroBatch, Plan
from twophase.errors import DeclinedError
from twophase.events import Observers
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.failpoints import arm, be_the_driver
from twophase.options.job_options import JobOptions
from twophase.testing.contract.stepping import Lines
from twophase.testing.harness import JOB, SINK
from twophase.testing.plain_host import (
    Done,
    ForkedWorkers,
    FreshStart,
    ListedRows,
    PlainFolder,
    PlainHost,
    PlainQuery,
    Task,
)

ARMED_IN = SUBSUME_SINKS_EVERY - 1
FIRST_CHECKPOINT = ARMED_IN - 1


@dataclass(frozen=True)
class Doom:
    """The faults of one driver.

    Attributes:
        failpoints: as `twophase.internals.failpoints` reads them.
        method: a method of the sink; the driver is killed before one of its lines.
        line: the number of that line; 0 counts them and kills nobody.
        declines: the first attempt is declined after its pieces were pre-committed.
        packages: whose lines count too.
    """

    failpoints: str = ""
    method: str = ""
    line: int = 0
    declines: bool = False
    packages: Sequence[str] = ()


@dataclass(frozen=True)
class Job:
    """The input of a driver.

    Attributes:
        folder: the job's folder, with the log of failpoints beside it.
        sink: as a job declares it.
        batches: for each checkpoint the rows of each of its tasks.
        environment: variables of the process, such as a password that the sink's options name.
    """

    folder: Path
    sink: ArrowSink
    batches: Sequence[Sequence[pa.RecordBatch]]
    environment: Mapping[str, str]

    @property
    def failpoints_log(self) -> Path:
        """The log of the failpoints that were reached."""
        return self.folder.with_suffix(".failpoints")


def drive(job: Job, doom: Doom, reports: Connection) -> None:
    """Run to the end, or be killed. Send errors and the number of lines counted to `reports`."""
    with _reporting(job.environment, reports):
        be_the_driver(job.failpoints_log)
        reports.send(_run(job, doom))


@dataclass(frozen=True)
class Rewind:
    """The input of a driver that rewinds a sink.

    Attributes:
        sink: as a job declares it.
        keep: as `CanRewind` takes it.
        attempt: of the driver.
        line: the driver is killed before this line of `rewind`; 0 counts them and kills nobody.
        packages: whose lines count too.
        schema: the columns of the rows.
        environment: as that of a job.
    """

    sink: ArrowSink
    keep: Mapping[str, int]
    attempt: Attempt
    line: int
    packages: Sequence[str]
    schema: pa.Schema
    environment: Mapping[str, str]


def rewind(given: Rewind, reports: Connection) -> None:
    """Rewind as recovery does, or be killed. Send errors and the number of lines to `reports`."""
    with _reporting(given.environment, reports):
        sink = given.sink.open(SinkContext(JOB, SINK, given.schema, parallelism=1))
        assert isinstance(sink, CanRewind)
        sink.check_rewind(given.keep)
        sink.fence(given.attempt)
        with Lines(sink, "rewind", _die_before(given.line), given.packages) as lines:
            sink.rewind(given.keep, given.attempt)
        sink.close()
        reports.send(lines.count)


def pre_commit(
    writers: WriterFactory,
    transaction: TransactionId,
    subtask: Subtask,
    batch: pa.RecordBatch,
    line: int,
    packages: Sequence[str],
    environment: Mapping[str, str],
    reports: Connection,
) -> None:
    """Pre-commit as a task does, or be killed before a line of it.

    Args:
        writers: of the sink.
        transaction: of the attempt.
        subtask: the task attempt.
        batch: its rows.
        line: the writer is killed before this line of `pre_commit`; 0 counts them and kills nobody.
        packages: whose lines count too.
        environment: as that of a job.
        reports: gets the number of lines, or the error.
    """
    with _reporting(environment, reports):
        writer = writers(transaction, subtask)
        writer.write(batch)
        with Lines(writer, "pre_commit", _die_before(line), packages) as lines:
            writer.pre_commit()
        reports.send(lines.count)


def repair(
    sink: Sink,
    pieces: Sequence[Committable],
    environment: Mapping[str, str],
    reports: Connection,
) -> None:
    """Commit pieces as a repair does, where no Spark has been started. Send errors to `reports`.

    Args:
        sink: as a job declares it.
        pieces: all that are in doubt.
        environment: as that of a job.
        reports: gets the error, if there is one.
    """
    with _reporting(environment, reports):
        opened = sink.open(SinkContext(JOB, SINK, None, parallelism=0))
        opened.history()
        assert len(opened.in_doubt()) == len(pieces)
        while any(
            isinstance(outcome, RetryLater)
            for outcome in opened.commit([CommitRequest(piece) for piece in pieces])
        ):
            pass
        opened.close()
        spark = sys.modules.get("pyspark")
        assert spark is None or spark.SparkContext._active_spark_context is None, "Spark is up"


@contextmanager
def _reporting(environment: Mapping[str, str], reports: Connection) -> Iterator[None]:
    os.environ.update(environment)
    try:
        yield
    except BaseException:
        reports.send(traceback.format_exc())
        raise


def _die_before(line: int) -> Callable[[int], None]:
    """Return what kills this process when it is called with the number of the line."""

    def at_line(number: int) -> None:
        if number == line:
            os.kill(os.getpid(), signal.SIGKILL)

    return at_line


class _Workers(ForkedWorkers):
    """Declines an attempt after its pieces were pre-committed, if it is to.

    Attributes:
        declines: whether the next attempt is to be declined.
    """

    declines = False

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        declines, self.declines = self.declines, False
        super().run(tasks, timeout_s, stopping, (lambda *_: None) if declines else done)
        if declines:
            raise DeclinedError("This attempt was to be declined.")


class _Host(PlainHost):
    """The plain host, with the faults of one driver in checkpoint `ARMED_IN`.

    Attributes:
        lines: how many lines of the method were counted.
    """

    def __init__(self, job: Job, doom: Doom, options: JobOptions) -> None:
        self._faulty = _Workers()
        super().__init__(JOB, options, ListedRows(job.batches), self._faulty)
        self.lines = 0
        self._doom = doom

    def beginning(self, context: JobContext, plan: Plan) -> FreshStart:
        return FreshStart(FIRST_CHECKPOINT)

    def start(
        self,
        coordinator: CheckpointCoordinator,
        folder: PlainFolder,
        plan: Plan,
        handle: Handle,
    ) -> PlainQuery:
        def armed(number: int, batch: MicroBatch) -> None:
            if number != ARMED_IN:
                handle(number, batch)
                return
            arm(self._doom.failpoints)
            self._faulty.declines = self._doom.declines
            if not (method := self._doom.method):
                handle(number, batch)
                return
            die = _die_before(self._doom.line)
            with Lines(coordinator.sinks[SINK], method, die, self._doom.packages) as lines:
                handle(number, batch)
            self.lines = lines.count

        return super().start(coordinator, folder, plan, armed)


def _run(job: Job, doom: Doom) -> int:
    """Run the job to its end; return how many lines were counted."""
    settings = {"checkpoint.tolerable_failures": 3, "restart.strategy": "none"}
    options = JobOptions.parse({"checkpointLocation": str(job.folder), **settings}, "kill test")
    host = _Host(job, doom, options)
    engine = Engine(host, JOB, {SINK: job.sink}, options, Observers())
    engine.start()
    engine.await_termination()
    return host.lines
