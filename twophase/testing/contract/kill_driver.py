"""A driver to kill: the coordinator, rows in memory, and the writers in forked workers.

    1. open the sink, recover, handle the newest checkpoint again as Spark would
    2. take the checkpoints that are left; each has one worker for each of its batches

Armed failpoints act in checkpoint `ARMED_IN`: one is committed by then, another follows, and the
sinks subsume in it.

`integration/without_spark` has its own driver, which tests the coordinator: several sinks, Spark's
folder, restarts, cancelled tasks. This one tests a sink: it waits for every worker, so that they
leave the same state each time, and counts lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.sink import ArrowSink, CanRewind, OpenArrowSink, SinkContext, WriterFactory
from twophase.coordinator.commit.checkpoint_completion import _SUBSUME_SINKS_EVERY
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.errors import DeclinedError
from twophase.events import Observers
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.clock import SystemClock
from twophase.internals.failpoints import arm, failpoint
from twophase.options.job_options import JobOptions
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.files.storage import LocalStorage
from twophase.testing.contract.stepping import Lines
from twophase.testing.harness import JOB, SINK, write_piece
from twophase.testing.plain_driver import be_the_driver, begin_lineage, run_batch

ARMED_IN = _SUBSUME_SINKS_EVERY - 1
FIRST_CHECKPOINT = ARMED_IN - 1


@dataclass(frozen=True)
class Doom:
    """The faults of one driver.

    Attributes:
        failpoints: as `twophase.internals.failpoints` reads them.
        method: a method of the sink; the driver is killed before one of its lines.
        line: the number of that line; 0 counts them and kills nobody.
        declines: the first attempt is declined after its pieces were pre-committed.
    """

    failpoints: str = ""
    method: str = ""
    line: int = 0
    declines: bool = False


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
    os.environ.update(job.environment)
    be_the_driver(job.failpoints_log)
    try:
        reports.send(_Driver(job, doom).run())
    except BaseException:
        reports.send(traceback.format_exc())
        raise


@dataclass(frozen=True)
class Rewind:
    """The input of a driver that rewinds a sink.

    Attributes:
        sink: as a job declares it.
        keep: as `CanRewind` takes it.
        attempt: of the driver.
        line: the driver is killed before this line of `rewind`; 0 counts them and kills nobody.
        schema: the columns of the rows.
        environment: as that of a job.
    """

    sink: ArrowSink
    keep: Mapping[str, int]
    attempt: Attempt
    line: int
    schema: pa.Schema
    environment: Mapping[str, str]


def rewind(given: Rewind, reports: Connection) -> None:
    """Rewind as recovery does, or be killed. Send errors and the number of lines to `reports`."""
    os.environ.update(given.environment)

    def die_at(line: int) -> None:
        if line == given.line:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        sink = given.sink.open(SinkContext(JOB, SINK, given.schema, parallelism=1))
        assert isinstance(sink, CanRewind)
        sink.check_rewind(given.keep)
        sink.fence(given.attempt)
        with Lines(sink, "rewind", die_at) as lines:
            sink.rewind(given.keep, given.attempt)
        sink.close()
        reports.send(lines.count)
    except BaseException:
        reports.send(traceback.format_exc())
        raise


def pre_commit(
    writers: WriterFactory,
    transaction: TransactionId,
    subtask: Subtask,
    batch: pa.RecordBatch,
    line: int,
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
        environment: as that of a job.
        reports: gets the number of lines, or the error.
    """
    os.environ.update(environment)

    def die_at(number: int) -> None:
        if number == line:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        writer = writers(transaction, subtask)
        writer.write(batch)
        with Lines(writer, "pre_commit", die_at) as lines:
            writer.pre_commit()
        reports.send(lines.count)
    except BaseException:
        reports.send(traceback.format_exc())
        raise


class _Driver:
    def __init__(self, job: Job, doom: Doom) -> None:
        self._job = job
        self._doom = doom
        self._declines = doom.declines
        self._tasks = 0
        self._sink = job.sink.open(
            SinkContext(JOB, SINK, job.batches[0][0].schema, parallelism=len(job.batches[0]))
        )
        settings = {"checkpointLocation": str(job.folder), "checkpoint.tolerable_failures": 3}
        options = JobOptions.parse(settings, "kill test")
        context = JobContext(
            JOB, LocalStorage(job.folder), {SINK: self._sink}, options, Observers(), SystemClock()
        )
        self._coordinator = CheckpointCoordinator(
            context, snapshot=lambda _, frozen: {"sources": [{"entries": list(frozen.end)}]}
        )

    def run(self) -> int:
        """Return how many lines were counted."""
        coordinator, lines = self._coordinator, 0
        coordinator.recover()
        begin_lineage(coordinator, FIRST_CHECKPOINT)
        newest = coordinator.newest()
        first = newest.checkpoint if newest else FIRST_CHECKPOINT
        for number in range(first, FIRST_CHECKPOINT + len(self._job.batches)):
            lines += self._armed(number) if number == ARMED_IN else self._checkpoint(number)
        coordinator.close()
        self._sink.close()
        return lines

    def _armed(self, number: int) -> int:
        arm(self._doom.failpoints)
        if not self._doom.method:
            return self._checkpoint(number)
        with Lines(self._sink, self._doom.method, self._die_at) as lines:
            self._checkpoint(number)
        return lines.count

    def _die_at(self, line: int) -> None:
        if line == self._doom.line:
            os.kill(os.getpid(), signal.SIGKILL)

    def _checkpoint(self, number: int) -> int:
        frozen = FrozenOffsets(
            (f'{{"next":{number}}}',) if number > FIRST_CHECKPOINT else (None,),
            (f'{{"next":{number + 1}}}',),
        )
        run_batch(self._coordinator, number, frozen, self._pre_commit)
        return 0

    def _pre_commit(self, pending: PendingCheckpoint) -> None:
        transaction, workers = pending.transaction(SINK), []
        for index, batch in enumerate(self._job.batches[pending.checkpoint - FIRST_CHECKPOINT]):
            self._tasks += 1
            workers.append(
                _start_worker(self._sink, transaction, Subtask(index, self._tasks), batch)
            )
        answers = [_wait_for(*worker) for worker in workers]
        if not all(answers):
            raise DeclinedError(f"Of {len(answers)} workers {answers.count(b'')} died.")
        if self._declines and pending.checkpoint == ARMED_IN:
            self._declines = False
            raise DeclinedError("This attempt was to be declined.")
        pending.acknowledge(SINK, [Committable.from_json(json.loads(answer)) for answer in answers])


def _start_worker(
    sink: OpenArrowSink, transaction: TransactionId, subtask: Subtask, batch: pa.RecordBatch
) -> tuple[int, int]:
    """Fork a worker; return its process id and the descriptor that its answer is read from."""
    answer, ours = os.pipe()
    process = os.fork()
    if process:
        os.close(ours)
        return process, answer
    code = 1
    try:
        sys.settrace(None)
        piece = _write(sink, transaction, subtask, batch)
        os.write(ours, json.dumps(piece.to_json()).encode())
        code = 0
    except BaseException:  # noqa: BLE001 - a worker ends here, whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


def _write(
    sink: OpenArrowSink, transaction: TransactionId, subtask: Subtask, batch: pa.RecordBatch
) -> Committable:
    piece = write_piece(sink, transaction, subtask, batch)
    failpoint("C03")
    assert piece is not None
    return piece


def _wait_for(process: int, answer: int) -> bytes:
    """Return a worker's answer; nothing if it died."""
    with open(answer, "rb") as stream:
        found = stream.read()
    os.waitpid(process, 0)
    return found
