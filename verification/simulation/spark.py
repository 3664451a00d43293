"""What stands for Spark's executors: the input, and the tasks of a job.

Real are the function that runs in each task and the writers under it. A task is a process of its
own, as Spark's Python workers are: it may be killed, be tried twice, or go on after
its attempt is over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

import pyarrow as pa
import pymysql

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenArrowSink, OpenSink
from twophase.contract.source import RangeReader
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import CheckpointExpiredError, DeclinedError, TwoPhaseError
from twophase.events import Observer, SinkAcknowledged
from twophase.failure_reason import CheckpointFailureReason
from twophase.ids import TransactionId
from twophase.internals.json_values import from_json
from twophase.spark.batch.chain import Chain, Link
from twophase.spark.batch.writer_task import WriterTask
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from verification.simulation.faults import Faults
from verification.simulation.options import Mishap, Options
from verification.simulation.scheduler import Process, Scheduler, Task

SCHEMA = pa.schema([("checkpoint", pa.int64()), ("id", pa.int64())])
TIMEOUT_S = 10.0
STRIDE = 8
"""A task that writes part p again is task p and a multiple of this; no attempt
has as many tasks.
"""
_LIVES_ON_S = 4.0


class Input:
    """The rows to come, in chunks: one for each micro-batch, cut into one part for each task.

    Args:
        options: how many chunks and tasks.
    """

    def __init__(self, options: Options) -> None:
        random = Random(options.seed)
        self._counts = [
            # Every now and then nothing at all arrives (HD6), or nothing for one task (H10).
            [0] * options.writers
            if random.random() < options.empty_rate
            else [random.choice((0, 1, 3, 5)) for _ in range(options.writers)]
            for _ in range(options.checkpoints)
        ]

    def batches(self, chunk: int, part: int) -> Sequence[pa.RecordBatch]:
        """What a task reads."""
        part %= STRIDE
        count = self._counts[chunk][part]
        return [_batch(chunk, part, count)] if count else []

    def rows(self, chunk: int, part: int) -> list[tuple[int, int]]:
        """The same, as rows of the target."""
        part %= STRIDE
        return [(chunk, _first(chunk, part) + index) for index in range(self._counts[chunk][part])]

    def all_rows(self, chunks: int) -> list[tuple[int, int]]:
        """What a target holds after so many chunks."""
        return [row for chunk in range(chunks) for row in self.rows_of(chunk)]

    def rows_of(self, chunk: int) -> list[tuple[int, int]]:
        """What a chunk adds to it."""
        parts = range(len(self._counts[chunk]))
        return [row for part in parts for row in self.rows(chunk, part)]


class TaskProcess(Process):
    """A Python worker.

    Attributes:
        part: the partition.
        attempt: the task attempt's id.
    """

    def __init__(self, driver: Process, part: int, attempt: int) -> None:
        super().__init__(f"{driver.name}.task{attempt}", driver)
        self.part = part
        self.attempt = attempt

    def partitionId(self) -> int:
        return self.part

    def taskAttemptId(self) -> int:
        return self.attempt


class Executors:
    """Runs the writers of one driver.

    Args:
        driver: its process.
        scheduler: whose turn it is.
        options: how often tasks fail.
        source: the rows.
        faults: what befalls tasks.
    """

    def __init__(
        self, driver: Process, scheduler: Scheduler, options: Options, source: Input, faults: Faults
    ) -> None:
        self.processes: list[TaskProcess] = []
        self._driver = driver
        self._scheduler = scheduler
        self._random = scheduler.random
        self._options = options
        self._source = source
        self._faults = faults
        self._attempts = 0
        self._under_way = self._cancelled = False

    def pre_commit(
        self,
        pending: PendingCheckpoint,
        sinks: Mapping[str, OpenSink],
        chunk: int,
        tell: Observer,
        before_one: Callable[[PendingCheckpoint], None],
    ) -> None:
        """Let every sink that is asked write a chunk, side by side; return or raise when no task
        of it is known to run.

        Args:
            pending: the attempt.
            sinks: those of the job.
            chunk: of the input.
            tell: hears of each acknowledgement.
            before_one: called before each.
        """
        parts, asked = range(self._options.writers), pending.missing()
        if self._options.chained:
            links = [
                Link(name, (0, 1), SCHEMA, _arrow(sinks[name]).writers(), pending.transaction(name))
                for name in asked
            ]
            ranges = [self._source.batches(chunk, part) for part in parts]
            jobs: list[_SinkJob] = [
                _Acknowledging(
                    Chain(_GivenRows(), ranges, again=False, begun=True, links=links),
                    parts,
                    asked,
                    pending,
                    tell,
                    before_one,
                )
            ]
        else:
            jobs = [
                _Acknowledging(
                    WriterTask(_arrow(sinks[name]).writers(), pending.transaction(name)),
                    parts,
                    [name],
                    pending,
                    tell,
                    before_one,
                )
                for name in asked
            ]
        self._run(jobs, chunk)

    def cancel(self) -> None:
        """Cancel the jobs that run now, as a stop of the query does. Later ones are not."""
        self._cancelled = self._under_way

    def write_again(
        self, sink: OpenSink, transaction: TransactionId, parts: Sequence[int], chunk: int
    ) -> Mapping[int, Committable | None]:
        """Let one sink write parts of a chunk again; return what each task has
        pre-committed, by its number.
        """
        job = _SinkJob(WriterTask(_arrow(sink).writers(), transaction), parts)
        self._run([job], chunk)
        return {part: piece for part, [piece] in job.results.items()}

    def _run(self, jobs: Sequence[_SinkJob], chunk: int) -> None:
        deadline_s = self._scheduler.now_s + TIMEOUT_S
        self._under_way, self._cancelled = True, False
        try:
            for job in jobs:
                for part in job.parts:
                    self._start(job, chunk, part)
                    if self._happens(self._options.late_rate):
                        self._start(job, chunk, part)
            while unfinished := [job for job in jobs if not job.acknowledged]:
                self._advance(unfinished, chunk, deadline_s)
        except Exception:
            self._end_tasks(jobs)
            raise
        finally:
            self._under_way = False

    def _advance(self, jobs: Sequence[_SinkJob], chunk: int, deadline_s: float) -> None:
        """Wait until the next task ends, and look at how."""
        running = [task for job in jobs for task in job.running]

        def moved() -> bool:
            return self._cancelled or any(task.done for task in running)

        if not self._scheduler.wait_until(moved, deadline_s):
            raise CheckpointExpiredError(f"not complete after {TIMEOUT_S:g} s")
        if self._cancelled:
            raise DeclinedError("its jobs were cancelled")
        for job in jobs:
            for task in [task for task in job.running if task.done]:
                part = job.running.pop(task)
                if task.error is None:
                    job.results.setdefault(part, task.result)
                elif _is_of_server(task.error):
                    raise DeclinedError(f"a task failed: {task.error!r}")
                elif isinstance(task.error, TwoPhaseError):
                    raise task.error
                elif part not in job.results and part not in job.running.values():
                    job.tries += 1
                    if job.tries > 1:
                        raise DeclinedError("tasks were lost")
                    self._start(job, chunk, part)
            if len(job.results) == len(job.parts):
                job.acknowledge()

    def _start(self, job: _SinkJob, chunk: int, part: int) -> None:
        self._attempts += 1
        process = TaskProcess(self._driver, part, self._attempts)
        self.processes.append(process)
        if self._happens(self._options.mishap_rate):
            self._faults.arm(process, Mishap.of_task(self._random))
        batches = self._source.batches(chunk, part)
        task = self._scheduler.spawn(process, process.name, lambda: self._work(job, task, batches))
        job.running[task] = part

    def _work(self, job: _SinkJob, task: Task, batches: Sequence[pa.RecordBatch]) -> None:
        """One task, whose end nobody may look at any more."""
        try:
            task.result = job.write(batches)
        except Exception as error:
            if _is_of_server(error) or (
                isinstance(error, TwoPhaseError) and not _is_of_writer(error)
            ):
                raise
            self._scheduler.stop(f"{task.name} failed with {error!r}")
            raise
        finally:
            task.process.kill()

    def _end_tasks(self, jobs: Sequence[_SinkJob]) -> None:
        """The tasks are killed hard, some of them late (H59)."""
        for job in jobs:
            for task in job.running:
                if self._happens(self._options.late_rate):
                    self._faults.arm(task.process, Mishap.of_latecomer(self._random))
                    self._scheduler.at(self._scheduler.now_s + _LIVES_ON_S, task.process.kill)
                else:
                    task.process.kill()

    def _happens(self, rate: float) -> bool:
        return not self._faults.calm and self._random.random() < rate


class _SinkJob:
    """The Spark job that writes to one sink, or to those of a chain.

    Args:
        task: what runs in each of its tasks.
        parts: their numbers.
    """

    def __init__(self, task: WriterTask | Chain, parts: Sequence[int]) -> None:
        self.parts = parts
        self.running: dict[Task, int] = {}
        self.results: dict[int, list[Committable | None]] = {}
        self.tries = 0
        self.acknowledged = False
        self._task = task

    def write(self, batches: Sequence[pa.RecordBatch]) -> list[Committable | None]:
        """What runs in a task: the real function, whose rows travel as Spark would carry them."""
        rows = [row for found in self._task(iter(batches)) for row in found.to_pylist()]
        for row in rows:
            if row.get("error"):  # of a chain's pre-commit, after the piece of another sink
                raise DeclinedError(row["error"])
        texts = [row["committable"] for row in rows]
        return [
            None if text is None else from_json(Committable, json.loads(text), "A result")
            for text in texts
        ]

    def acknowledge(self) -> None:
        """Every part has a result; the first one counts."""
        self.acknowledged = True


class _Acknowledging(_SinkJob):
    """The same for a checkpoint that hears of it."""

    def __init__(
        self,
        task: WriterTask | Chain,
        parts: Sequence[int],
        names: Sequence[str],
        pending: PendingCheckpoint,
        tell: Observer,
        before_one: Callable[[PendingCheckpoint], None],
    ) -> None:
        super().__init__(task, parts)
        self._names = names
        self._pending = pending
        self._tell = tell
        self._before_one = before_one

    def acknowledge(self) -> None:
        """As reported by `twophase.spark.batch.batch`."""
        super().acknowledge()
        for place, name in enumerate(self._names):
            results = [self.results[part][place] for part in sorted(self.results)]
            self._acknowledge(name, [piece for piece in results if piece is not None])

    def _acknowledge(self, name: str, pieces: Sequence[Committable]) -> None:
        pending = self._pending
        self._before_one(pending)
        pending.acknowledge(name, pieces)
        rows = sum(piece.rows for piece in pieces)
        self._tell(
            SinkAcknowledged(
                pending.job, pending.checkpoint, pending.attempt, name, len(pieces), rows, 0.0
            )
        )


class _GivenRows(RangeReader[Any]):
    """Stands for the source of a chain: its ranges are rows."""

    def read(
        self, item: Sequence[pa.RecordBatch], *, again: bool, begun: bool
    ) -> Iterator[pa.RecordBatch]:
        """See `RangeReader.read`."""
        assert not again
        yield from item


def _arrow(sink: OpenSink) -> OpenArrowSink:
    assert isinstance(sink, OpenArrowSink)
    return sink


def _is_of_writer(error: BaseException) -> bool:
    """Whether a writer has failed with an error that it does not name."""
    failed = CheckpointFailureReason.TASK_CHECKPOINT_FAILURE
    return isinstance(error, DeclinedError) and error.reason is failed


def _is_of_server(error: BaseException) -> bool:
    """Whether a server or a disk has failed, in a writer or beside it."""
    cause = error.__cause__ if _is_of_writer(error) else error
    return isinstance(cause, OSError | pymysql.Error)


@lru_cache(maxsize=4096)
def _batch(chunk: int, part: int, count: int) -> pa.RecordBatch:
    first = _first(chunk, part)
    return pa.RecordBatch.from_pydict(
        {"checkpoint": [chunk] * count, "id": list(range(first, first + count))}, schema=SCHEMA
    )


def _first(chunk: int, part: int) -> int:
    return chunk * 100 + part * 10


def _line(chunk: int) -> str:
    return json.dumps({"next": chunk})


def offsets_of(chunk: int) -> FrozenOffsets:
    """The offsets of the micro-batch that reads a chunk."""
    return FrozenOffsets((_line(chunk) if chunk else None,), (_line(chunk + 1),))


def chunk_of(offsets: FrozenOffsets) -> int:
    """The chunk that a micro-batch reads."""
    [line] = offsets.end
    return int(json.loads(line or "")["next"]) - 1


def context_of(scheduler: Scheduler) -> Any:
    """Stands for the class `pyspark.TaskContext`."""

    class Context:
        @staticmethod
        def get() -> Process:
            return scheduler.current.process

    return Context
