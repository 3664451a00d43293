"""Reads the records of a decided checkpoint again, through the job's own plan, for a rewrite.

A query runs over a temporary folder in which one micro-batch is planned and not finished: Spark
runs that one, and no other. The folder is deleted afterwards; the job's own folder is only read.

If the plan takes rows one by one, a piece's subtask tells which records it has: Spark numbers the
tasks of the sources one after the other, and a source numbers its ranges the same way each time.
The micro-batch is then narrowed to the ranges of the lost pieces. Two ranges of one part of a
source, such as a partition of Kafka, go into separate micro-batches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.contract.committable import Committable
from twophase.contract.sink import ArrowSink, OpenSink
from twophase.contract.source import RereadsRanges, SourceLeg, SourceRange
from twophase.contract.source_entry_points import source_of
from twophase.errors import ConfigError, SourceLossError, StopJobError
from twophase.ids import TransactionId
from twophase.operations.repair.rewrite import Lost
from twophase.spark.batch.batch import JobSink
from twophase.spark.batch.spark_errors import declined, failure
from twophase.spark.batch.writer_task import pre_commit
from twophase.spark.folder.noted_settings import header_of
from twophase.spark.folder.spark_folder import write_planned
from twophase.spark.plan import logical_plan, shuffles
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.files.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ACCEPT = (
    "go on without these rows: twophase repair accept-loss JOB.yaml, with the same --checkpoint "
    "and --sink."
)
_OTHER_FILE = (
    f"give the job file that wrote the checkpoint, if this is another; otherwise {_ACCEPT}"
)
_WHOLE = -1


@dataclass(frozen=True)
class _Task:
    """One task of the checkpoint, by what it has read.

    Attributes:
        leg: the position of its source in the plan.
        item: the range.
    """

    leg: int
    item: SourceRange


class PlanReread:
    """Reads ranges of the sources again through a job's plan.

    Args:
        job: the job's name.
        frame: the job's rows, streaming.
        sinks: by name.
        opened: the same, open for these rows.
        storage: the job's folder.

    Raises:
        ConfigError: the plan keeps state, is not deterministic, or has a source that cannot read a
            given range again.
    """

    def __init__(
        self,
        job: str,
        frame: DataFrame,
        sinks: Mapping[str, JobSink],
        opened: Mapping[str, OpenSink],
        storage: LocalStorage,
    ) -> None:
        self._job = job
        self._frame = frame
        self._sinks = sinks
        self._opened = opened
        self._storage = storage
        self._legs: list[tuple[SourceLeg, RereadsRanges[Any]]] = []
        if logical_plan.is_stateful(frame):
            raise self._refused(
                "its plan keeps state, or may: the rows depend on more than these records"
            )
        if not logical_plan.is_deterministic(frame):
            raise self._refused("its plan draws by chance: the same records give other rows")
        for leg in logical_plan.sources(frame):
            source = source_of(leg.name)
            if not isinstance(source, RereadsRanges):
                raise self._refused(f"it reads {leg.name}, which cannot read a given range again")
            self._legs.append((leg, source))
        shuffles.check(job, frame.sparkSession, (sink.rows(frame) for sink in sinks.values()))

    def ranges(self, lost: Lost) -> Sequence[str]:
        """See `Reread.ranges`."""
        if not logical_plan.is_deterministic(self._sinks[lost.sink].rows(self._frame)):
            raise StopJobError(
                f"Job {self._job!r}: what sink {lost.sink!r} makes of the rows draws by chance: "
                "the same records give other rows there. Nothing was written.",
                remedy=_ACCEPT,
            )
        batch_header(self._job, self._storage, lost.checkpoint)
        tasks = [task for batch in self._batches(lost) for task in batch.values()]
        for task in tasks:
            self._check(lost, task)
        return [f"{task.item} (source {self._name(task.leg)})" for task in tasks]

    def write(self, lost: Lost, transaction: TransactionId) -> Mapping[int, Sequence[Committable]]:
        """See `Reread.write`."""
        offsets = lost.checkpoint.offsets
        if lost.whole:
            return {
                _WHOLE: self._run(
                    lost,
                    offsets,
                    lambda rows: self._pre_commit(rows, lost.sink, transaction),
                )
            }
        found: dict[int, list[Committable]] = {piece.subtask.index: [] for piece in lost.pieces}
        first = first_free_task(lost, len(self._tasks(offsets)))
        for batch in self._batches(lost):
            narrowed = self._narrowed(offsets, batch.values())
            tasks = self._tasks(narrowed)
            owners = [_owner(batch, task) for task in tasks]

            def write(rows: DataFrame, first: int = first) -> list[Committable]:
                return self._pre_commit(rows, lost.sink, transaction, first)

            for piece in self._run(lost, narrowed, write):
                found[owners[piece.subtask.index - first]].append(piece)
            first += len(tasks)
        return found

    def _check(self, lost: Lost, task: _Task) -> None:
        try:
            leg, source = self._legs[task.leg]
            source.check_range(leg, task.item)
        except SourceLossError as error:
            raise type(error)(
                f"Job {self._job!r}: pieces of checkpoint {lost.checkpoint.checkpoint} are lost in "
                f"sink {lost.sink!r}, and their records are gone from the source: "
                f"{error.what} Nothing was written.",
                remedy=_ACCEPT,
            ) from error

    # -- which records -----------------------------------------------------------------------------

    def _tasks(self, offsets: FrozenOffsets) -> list[_Task]:
        """Return what each task of a micro-batch reads, by the task's index."""
        found = []
        for place, (leg, source, start, end) in enumerate(self._lines(offsets)):
            found += [_Task(place, item) for item in source.ranges(leg, start, end)]
        return found

    def _lines(
        self, offsets: FrozenOffsets
    ) -> Iterator[tuple[SourceLeg, RereadsRanges[Any], str | None, str | None]]:
        """Yield each source with the lines at which it begins and ends."""
        if len(offsets.end) != len(self._legs):
            raise self._refused(
                f"the checkpoint has {len(offsets.end)} sources, the plan {len(self._legs)}"
            )
        for (leg, source), start, end in zip(self._legs, offsets.start, offsets.end, strict=True):
            uid = source.uid(leg)
            for line in (start, end):
                if line is not None and (other := source.uid_in(line)) != uid:
                    raise self._refused(
                        f"the checkpoint has a source {other!r} where the plan has {uid!r}"
                    )
            yield leg, source, start, end

    def _name(self, place: int) -> str:
        leg, source = self._legs[place]
        return source.uid(leg) or leg.name

    def _batches(self, lost: Lost) -> list[dict[int, _Task]]:
        """Return the micro-batches that read what is lost, each with the tasks that it repeats."""
        tasks = self._tasks(lost.checkpoint.offsets)
        if lost.whole:
            return [dict(enumerate(tasks))]
        if not self._writes_row_by_row(self._sinks[lost.sink]):
            raise self._part(lost, "its rows are not written one by one, as they are read")
        if others := [leg.name for leg, source in self._legs if not source.numbers_tasks()]:
            raise self._part(lost, f"{others[0]} does not number its tasks by what they read")
        batches: list[dict[int, _Task]] = []
        for index in lost_tasks(self._job, lost, len(tasks)):
            task = tasks[index]
            batch = next(
                (one for one in batches if all(_apart(task, other) for other in one.values())), None
            )
            if batch is None:
                batches.append(batch := {})
            batch[index] = task
        return batches

    def _writes_row_by_row(self, sink: JobSink) -> bool:
        """Return whether task i of the sink has the rows of task i of the sources."""
        rows = sink.rows(self._frame)
        return (
            isinstance(sink.sink, ArrowSink)
            and logical_plan.is_row_by_row(rows)
            and len(logical_plan.sources(rows))
            == len(self._legs)  # a union in its own query would number them differently
        )

    def _narrowed(self, offsets: FrozenOffsets, tasks: Iterable[_Task]) -> FrozenOffsets:
        """Return offsets around the ranges of some tasks only, at most one of each partition."""
        chosen, starts, ends = list(tasks), [], []
        for place, (leg, source, start, end) in enumerate(self._lines(offsets)):
            items = [task.item for task in chosen if task.leg == place]
            low, high = source.narrowed(leg, start, end, items)
            starts.append(low)
            ends.append(high)
        return FrozenOffsets(tuple(starts), tuple(ends))

    # -- the query ---------------------------------------------------------------------------------

    def _run(
        self, lost: Lost, offsets: FrozenOffsets, write: Callable[[DataFrame], list[Committable]]
    ) -> list[Committable]:
        """Run one micro-batch between these offsets, and return what was pre-committed."""
        checkpoint = lost.checkpoint
        found: list[Committable] | None = None
        errors: list[Exception] = []

        def handle(rows: DataFrame, _: int) -> None:
            nonlocal found
            try:
                found = write(rows)
            except BaseException as error:  # noqa: BLE001 Spark gets each as an exception
                errors.append(failure(error))
                raise errors[0] from errors[0].__cause__

        what = f"Reading checkpoint {checkpoint.checkpoint} again for sink {lost.sink!r}"
        with tempfile.TemporaryDirectory(prefix="twophase-rewrite-") as scratch:
            uri = write_planned(
                Path(scratch), offsets, batch_header(self._job, self._storage, checkpoint)
            )
            writer = self._frame.writeStream.queryName(f"{self._job}-rewrite").foreachBatch(handle)
            try:
                writer.option("checkpointLocation", uri).trigger(
                    once=True
                ).start().awaitTermination()
            except Exception as error:
                # Spark 4.1 fails behind a micro-batch of its Kafka source that was planned before
                # the run, in its report on it: all rows have been written by then.
                if found is None:
                    raise declined(errors[0] if errors else error, what) from error
        return found or []

    def _pre_commit(
        self, rows: DataFrame, sink: str, transaction: TransactionId, first: int = 0
    ) -> list[Committable]:
        return pre_commit(self._sinks[sink].rows(rows), self._opened[sink], transaction, first)

    def _part(self, lost: Lost, why: str) -> StopJobError:
        return StopJobError(
            f"Job {self._job!r}: part of checkpoint {lost.checkpoint.checkpoint} is lost in "
            f"sink {lost.sink!r}, and {why}: nothing tells which records the lost pieces had. "
            "Nothing was written.",
            remedy=_ACCEPT,
        )

    def _refused(self, reason: str) -> ConfigError:
        return ConfigError(
            f"Job {self._job!r}: nothing of it can be written again: {reason}. "
            "Nothing was written.",
            remedy=_OTHER_FILE,
        )


def batch_header(job: str, storage: LocalStorage, checkpoint: CompletedCheckpoint) -> str:
    """Return what Spark noted with a checkpoint's micro-batch: rows may depend on the settings.

    Raises:
        StopJobError: Spark's folder of the lineage is gone, or does not have them.
    """
    folder = storage.root / "spark" / checkpoint.lineage
    if noted := header_of(folder, checkpoint.checkpoint):
        return noted
    raise StopJobError(
        f"Job {job!r}: checkpoint {checkpoint.checkpoint} cannot be read again as it was: "
        f"{folder / 'offsets' / str(checkpoint.checkpoint)} does not tell its time and settings. "
        "Nothing was written.",
        remedy=f"restore Spark's folder of the lineage; otherwise {_ACCEPT}",
    )


def lost_tasks(job: str, lost: Lost, tasks: int) -> list[int]:
    """Return the indices of the checkpoint's tasks that wrote what is lost, in order.

    Args:
        job: the job's name.
        lost: part of what the sink was given.
        tasks: how many tasks read the checkpoint's records.

    Raises:
        StopJobError: none of them wrote a lost piece, because it was written again before.
        ConfigError: none of them wrote a lost piece, because another job file did.
    """
    checkpoint = f"checkpoint {lost.checkpoint.checkpoint}"
    strange = [piece for piece in lost.pieces if piece.subtask.index >= tasks]
    if not strange:
        return sorted(piece.subtask.index for piece in lost.pieces)
    if any(piece.transaction.attempt in lost.rewritten for piece in strange):
        raise StopJobError(
            f"Job {job!r}: part of {checkpoint} was written again before in sink {lost.sink!r}, "
            "and is lost once more: which records it had is no longer known. Nothing was written.",
            remedy=_ACCEPT,
        )
    raise ConfigError(
        f"Job {job!r}: {checkpoint} has a piece of task {strange[0].subtask.index}, and its "
        f"records make {tasks} tasks. Nothing was written.",
        remedy=_OTHER_FILE,
    )


def first_free_task(lost: Lost, tasks: int) -> int:
    """Return the first index from which on no task has ever had a piece in the checkpoint."""
    listed = {piece.subtask.index for piece in lost.checkpoint.committables[lost.sink]}
    return max(tasks, 1 + max(listed | lost.gone))


def _apart(task: _Task, other: _Task) -> bool:
    return (task.leg, task.item.key) != (other.leg, other.item.key)


def _owner(batch: Mapping[int, _Task], task: _Task) -> int:
    """Return the index of the checkpoint's task whose range contains a micro-batch's task."""
    return next(index for index, one in batch.items() if not _apart(one, task))
