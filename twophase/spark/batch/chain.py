"""A chain: tasks that read ranges of a source and write their rows, in one Python process.

Where the rows of a sink are columns of the source, a task reads, decodes and writes; otherwise a
row goes from a Python worker to the JVM and back to another worker. Sinks of one chain share the
decoded rows. Spark schedules the tasks: one for each range, as for its own read of the
micro-batch, so the pieces are those of the same subtasks.

    1. read and decode a batch of rows, and give it to the writer of each sink, until the range ends
    2. flush every writer            an error of the last row is found before a piece is durable
    3. pre-commit, one sink after the other

What fails in step 3 after the piece of another sink is durable is the result of the task, and not
an error of it: Spark would run the task again, whose rows would wait for those of that piece, and
would name that wait alone.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from twophase.contract.committable import Committable
from twophase.contract.sink import WriterFactory
from twophase.contract.source import RangeReader
from twophase.errors import DeclinedError, TwoPhaseError
from twophase.ids import Subtask, TransactionId
from twophase.internals.arrow_values import integers, texts
from twophase.internals.failpoints import failpoint
from twophase.internals.json_values import from_json, to_json
from twophase.internals.workers import freeze_gc
from twophase.spark.batch.writer_task import TaskWriter, share_with_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULT = "subtask int, sink int, committable string, records long, error string"


@dataclass(frozen=True)
class Link:
    """One sink of a chain.

    Attributes:
        sink: its name.
        columns: for each of its columns the position in the source's rows.
        schema: of its rows, as Spark would give them.
        writers: create its writers.
        transaction: the transaction that the pieces belong to.
    """

    sink: str
    columns: tuple[int, ...]
    schema: pa.Schema
    writers: WriterFactory
    transaction: TransactionId

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the sink's rows of the source's rows. Times become those of the session's zone."""
        columns = [
            batch.column(place).cast(field.type)
            for place, field in zip(self.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class Written:
    """What the tasks of a chain have done.

    Attributes:
        pieces: the committables of each sink.
        records: how many rows of the source were read.
    """

    pieces: Mapping[str, list[Committable]]
    records: int


@dataclass(frozen=True)
class Chain:
    """Tasks that read, decode and write. Picklable.

    Attributes:
        reader: of the source.
        ranges: of the micro-batch, in the order of the subtasks.
        again: whether an earlier run of the query has planned them.
        begun: whether the source has read a micro-batch before.
        links: the sinks.
    """

    reader: RangeReader[Any]
    ranges: Sequence[Any]
    again: bool
    begun: bool
    links: Sequence[Link]

    @property
    def name(self) -> str:
        """Name the chain among the jobs of a checkpoint: no sink has such a name."""
        return f"chain of {', '.join(link.sink for link in self.links)}"

    def run(self, spark: SparkSession) -> Written:
        """Run the tasks, in a Spark job."""
        share_with_workers(spark)
        count = len(self.ranges)
        rows = spark.range(0, count, 1, count).mapInArrow(self, _RESULT).collect()
        for row in rows:
            if row.error is not None:
                raise RuntimeError(row.error)  # as Spark raises that of a task, for `carried`
        found = [(row.subtask, row.sink) for row in rows]
        if sorted(found) != [(i, k) for i in range(count) for k in range(len(self.links))]:
            raise DeclinedError(
                f"{self.links[0].transaction}: Spark returned other results than one for each "
                f"subtask and sink of {self.name}: {sorted(found)}."
            )
        pieces: dict[str, list[Committable]] = {link.sink: [] for link in self.links}
        for row in rows:
            if row.committable is not None:
                piece = from_json(Committable, json.loads(row.committable), "A task's result")
                pieces[self.links[row.sink].sink].append(piece)
        return Written(pieces, sum(row.records for row in rows if row.sink == 0))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run in each task: read and write its range, and yield a row for each sink."""
        for _ in batches:  # only the task's number matters
            continue
        context = TaskContext.get()
        if context is None:
            raise DeclinedError(f"{self.name} was called outside a Spark task.")
        subtask = Subtask(context.partitionId(), context.taskAttemptId())
        made: list[Committable | None] = []
        records, error = 0, None
        try:
            records = self.write(subtask, made)
        except TwoPhaseError as failed:
            if not any(made):
                raise
            error = "".join(traceback.format_exception(failed))
        sinks = range(len(made))
        columns = [
            integers([subtask.index for _ in sinks], pa.int32()),
            integers(sinks, pa.int32()),
            texts([json.dumps(to_json(piece)) if piece else None for piece in made]),
            integers([records for _ in sinks]),
            texts([error for _ in sinks]),
        ]
        names = ["subtask", "sink", "committable", "records", "error"]
        yield pa.RecordBatch.from_arrays(columns, names=names)

    def write(self, subtask: Subtask, made: list[Committable | None]) -> int:
        """Read the range of a task attempt, and take its rows through phase 1 in every sink.

        Args:
            subtask: the task attempt.
            made: gets the piece of each sink once it is durable, in their order; None without rows.

        Returns:
            How many rows were read.
        """
        writers = [TaskWriter(link.writers, link.transaction, subtask) for link in self.links]
        records = 0
        try:
            item = self.ranges[subtask.index]
            for batch in self.reader.read(item, again=self.again, begun=self.begun):
                records += batch.num_rows
                for link, writer in zip(self.links, writers, strict=True):
                    writer.write(link.rows_of(batch))
            for writer in writers:
                writer.flush()
            for writer in writers:
                made.append(writer.pre_commit())
                failpoint("C03")
                failpoint("E02")
        except BaseException:
            for writer in writers[len(made) :]:  # the sinks abort what is durable
                writer.abort()
            raise
        freeze_gc()
        return records
