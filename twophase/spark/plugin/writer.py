"""The writer that Spark calls for each micro-batch: planned, pickled to tasks, recreated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from twophase.contract.committable import Committable
from twophase.errors import StopJobError
from twophase.ids import Attempt
from twophase.internals.json_values import from_json, to_json
from twophase.internals.workers import freeze_gc
from twophase.spark.batch.writer_task import WriterTask
from twophase.spark.plugin.description import PluginDescription
from twophase.spark.plugin.job import Acknowledged, Plan, job_of

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = "streaming.sql.batchId"


@dataclass
class TaskMessage(WriterCommitMessage):
    """The message that a task sends to the driver.

    Attributes:
        generation: the generation of the attempt that it wrote for.
        counter: the counter of that attempt.
        committable: its piece, as JSON; None if it had no rows.
    """

    generation: int
    counter: int
    committable: str | None

    def acknowledged(self) -> Acknowledged:
        """Return the message in the form that the job takes."""
        found = json.loads(self.committable or "null")
        piece = found and from_json(Committable, found, "A task's message")
        return Acknowledged(Attempt(self.generation, self.counter), piece)


class PluginWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch.

    Args:
        description: the query's description.
        plan: what the tasks do; None if the writer is only to commit or abort.
    """

    def __init__(self, description: PluginDescription, plan: Plan | None) -> None:
        self._description = description
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Phase 1, in a task: pre-commit all rows, or read and discard those of a decided batch."""
        self._description.environment.enter()
        plan = self._plan
        if plan is None:
            raise StopJobError(
                "A task received a writer without a plan.", remedy="report this as a bug."
            )
        self._check_batch(plan)
        committable: Committable | None = None
        if plan.transaction is None:
            for _ in iterator:
                pass
            freeze_gc()
        else:
            _, committable = WriterTask(plan.writers, plan.transaction).run(iterator)
        text = json.dumps(to_json(committable)) if committable else None
        return TaskMessage(plan.attempt.generation, plan.attempt.counter, text)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Decide and commit, in a Python process on the driver's machine."""
        acknowledged = [_of(message).acknowledged() for message in messages]
        job_of(self._description).commit(batchId, acknowledged)
        freeze_gc()

    # the log knows
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Abort the micro-batch, which has failed, and with it the query."""
        job_of(self._description).abort()

    def _check_batch(self, plan: Plan) -> None:
        """Refuse another micro-batch: an overtaken driver has planned by others' offsets."""
        context = TaskContext.get()
        number = context.getLocalProperty(_BATCH) if context else None
        if number != str(plan.checkpoint):
            raise StopJobError(
                f"Job {self._description.job!r}: Spark is running micro-batch {number}, but "
                f"micro-batch {plan.checkpoint} was planned. Nothing was written.",
                remedy="make sure that only one query runs on this checkpointLocation.",
            )


def _of(message: WriterCommitMessage | None) -> TaskMessage:
    if not isinstance(message, TaskMessage):
        raise StopJobError(
            f"Spark committed a micro-batch with the unknown task message {message!r}.",
            remedy="report this as a bug.",
        )
    return message
