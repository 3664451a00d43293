"""Phase 1 on the executors: a writer for each task attempt, in `mapInArrow` or Spark's own write.

The writers are the result stage of the job: no shuffle and no limit comes after them, so the
committable of the task attempt whose result Spark returns is the one in the checkpoint. Pieces that
other attempts of the task pre-committed are in no checkpoint, and are aborted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenArrowSink, OpenBatchSink, OpenSink, WriterFactory
from twophase.contract.writer import SinkWriter
from twophase.errors import DeclinedError, TwoPhaseError, fingerprint_of
from twophase.failure_reason import CheckpointFailureReason
from twophase.ids import Subtask, TransactionId
from twophase.internals.arrow_values import integers, texts
from twophase.internals.failpoints import failpoint
from twophase.internals.json_values import from_json, to_json
from twophase.internals.redaction import SETTING, share_redaction, shown
from twophase.internals.workers import freeze_gc
from twophase.seal import share_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pre_commit(
    batch: DataFrame, sink: OpenSink, transaction: TransactionId, first: int = 0
) -> list[Committable]:
    """Take the rows of one sink through phase 1; return the committables.

    Args:
        batch: the rows.
        sink: where they go.
        transaction: the transaction that the pieces belong to.
        first: the index of the first subtask; the others follow in the order of Spark's partitions.
    """
    match sink:
        case OpenArrowSink():
            return _write(batch, sink.writers(), transaction, first)
        case OpenBatchSink():
            return list(sink.pre_commit(batch, transaction))
        case other:
            raise TypeError(
                f"{type(other).__name__} is neither an OpenArrowSink nor an OpenBatchSink"
            )


def _write(
    batch: DataFrame, writers: WriterFactory, transaction: TransactionId, first: int
) -> list[Committable]:
    """Run the writers over a micro-batch, in a Spark job."""
    share_with_workers(batch.sparkSession)
    task = WriterTask(writers, transaction, first)
    results = batch.mapInArrow(task, "subtask int, committable string").collect()
    subtasks = [row.subtask for row in results]
    if len(set(subtasks)) != len(subtasks):
        raise DeclinedError(
            f"{transaction}: Spark returned two results for one subtask: {sorted(subtasks)}."
        )
    found = [row.committable for row in results if row.committable is not None]
    return [from_json(Committable, json.loads(text), "A task's result") for text in found]


def share_with_workers(spark: SparkSession) -> None:
    """Give the tasks that a job is about to start what their errors are sealed and shown with."""
    share_key(spark.sparkContext.environment)
    share_redaction(spark.conf.get(SETTING, "false") or "false", spark.sparkContext.environment)


class WriterTask:
    """The function that runs in each task. Pickled with what creates the writers."""

    def __init__(self, writers: WriterFactory, transaction: TransactionId, first: int = 0) -> None:
        self._writers = writers
        self._transaction = transaction
        self._first = first

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task, pre-commit, and yield one row with the committable."""
        subtask, committable = self.run(batches)
        text = json.dumps(to_json(committable)) if committable else None
        columns = [integers([subtask.index], pa.int32()), texts([text])]
        yield pa.RecordBatch.from_arrays(columns, names=["subtask", "committable"])

    def run(self, batches: Iterator[pa.RecordBatch]) -> tuple[Subtask, Committable | None]:
        """Write all rows of the task and pre-commit; the committable is None without rows."""
        context = TaskContext.get()
        if context is None:
            raise DeclinedError(f"{self._transaction}: the writer was called outside a Spark task.")
        subtask = Subtask(self._first + context.partitionId(), context.taskAttemptId())
        return subtask, self.write(batches, subtask)

    def write(self, batches: Iterator[pa.RecordBatch], subtask: Subtask) -> Committable | None:
        """Write all rows as the task attempt `subtask`, and pre-commit; None without rows."""
        committable = self._write(batches, subtask)
        failpoint("C03")
        failpoint("E02")
        freeze_gc()
        return committable

    def _write(self, batches: Iterator[pa.RecordBatch], subtask: Subtask) -> Committable | None:
        writer = TaskWriter(self._writers, self._transaction, subtask)
        try:
            for batch in batches:
                writer.write(batch)
            return writer.pre_commit()
        except BaseException:
            writer.abort()
            raise


class TaskWriter:
    """The writer of one sink in a task attempt, created with the first row.

    Args:
        writers: create it.
        transaction: of the sink.
        subtask: the task attempt.
    """

    def __init__(
        self, writers: WriterFactory, transaction: TransactionId, subtask: Subtask
    ) -> None:
        self._writers = writers
        self._transaction = transaction
        self._subtask = subtask
        self._writer: SinkWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, if there are any."""
        if batch.num_rows == 0:
            return
        with self._pre_committing():
            if self._writer is None:
                self._writer = self._writers(self._transaction, self._subtask)
            self._writer.write(batch)

    def flush(self) -> None:
        """Send the rows that the writer keeps back."""
        with self._pre_committing():
            if self._writer is not None:
                self._writer.flush()

    def pre_commit(self) -> Committable | None:
        """Pre-commit; return None without rows."""
        with self._pre_committing():
            return self._writer.pre_commit() if self._writer else None

    def abort(self) -> None:
        """Discard the rows after an error."""
        if self._writer is not None:
            self._writer.abort()

    @contextmanager
    def _pre_committing(self) -> Iterator[None]:
        """Name an error of the writer as one: what the task reads may fail too."""
        try:
            yield
        except TwoPhaseError:
            raise
        except Exception as error:
            raise DeclinedError(
                f"{self._transaction}: the writer of subtask {self._subtask} failed: "
                f"{type(error).__name__}: {shown(str(error))}.",
                reason=CheckpointFailureReason.TASK_CHECKPOINT_FAILURE,
                fingerprint=fingerprint_of(error),
            ) from error
