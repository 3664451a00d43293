"""The `foreachBatch` handler: runs the two-phase commit for micro-batch n.

1. read the frozen offsets of batch n from Spark's offset log
2. if it is already decided: commit again, and run it without sinks if the plan keeps state
3. otherwise: all sinks pre-commit concurrently, on rows computed once; then make durable what Spark
   wrote for the batch. A micro-batch without partitions is decided like any other (hazard rule
   HD6), without asking any sink. A sink that is ahead, from an earlier attempt, is not asked either
4. return only when the checkpoint is decided; otherwise raise, even while the query is being
   stopped, because Spark takes a normal return for success (hazards H54, H56)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from twophase.config import CheckpointMode, JobOptions
from twophase.coordinator.coordinator import CheckpointCoordinator, Replay
from twophase.coordinator.pending import PendingCheckpoint
from twophase.errors import (
    OffsetOutOfRangeError,
    RangeChangedError,
    ReplayLostError,
    SourceLossError,
    TwoPhaseError,
)
from twophase.events import Observers, SinkAcknowledged
from twophase.failure_reason import CheckpointFailureReason
from twophase.ids import TransactionId
from twophase.protocol.committable import Committable
from twophase.protocol.sink import ArrowSink, BatchSink, Sink
from twophase.runtime import logical_plan
from twophase.runtime.batch_gate import BatchGate, GateClosedError
from twophase.runtime.lost_replay_remedy import begin_afresh
from twophase.runtime.shared_folder import SharedFolder
from twophase.runtime.spark_errors import as_declined, declined, failure
from twophase.runtime.spark_folder import SparkFolder
from twophase.runtime.spark_jobs import SparkJobs
from twophase.runtime.writer_task import write_batch
from twophase.sources.kafka import range_digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twophase.state.entries import Decision

_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_ROWS_DEFAULT = "10000"
_ARROW_ROWS_OURS = "50000"

# Spark stops a query cleanly when it finds this text in an error. Any other error would fail the
# query, and that of a cancelled job can overflow the stack in the regular expression that
# Spark runs over it.
_STOPPED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling o1.run: "
    "java.lang.InterruptedException: stopped"
)


@dataclass(frozen=True)
class JobSink:
    """A sink as a job uses it.

    Attributes:
        sink: the sink.
        transform: makes this sink's rows from the job's rows; None passes them as they are.
    """

    sink: Sink
    transform: Callable[[DataFrame], DataFrame] | None = None

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows for this sink."""
        return self.transform(frame) if self.transform else frame


class BatchHandler:
    """The function that Spark calls for each micro-batch.

    Args:
        coordinator: already recovered.
        sinks: by name.
        folder: Spark's folder of the lineage.
        shared: the folder around it, which the executors must share.
        options: the job's options.
        stateful: whether the plan may keep state or a watermark.
        keeps_state: whether it is known to keep state.
        observers: notified of acknowledgements.

    Attributes:
        error: the failure of the last micro-batch; Spark keeps only its text.
        gate: before each micro-batch.
    """

    def __init__(
        self,
        coordinator: CheckpointCoordinator,
        sinks: Mapping[str, JobSink],
        folder: SparkFolder,
        shared: SharedFolder,
        options: JobOptions,
        *,
        stateful: bool,
        keeps_state: bool,
        observers: Observers,
    ) -> None:
        self.error: Exception | None = None
        self.gate = BatchGate()
        self._coordinator = coordinator
        self._sinks = sinks
        self._folder = folder
        self._shared = shared
        self._options = options
        self._stateful = stateful
        self._keeps_state = keeps_state
        self._observers = observers

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Called by Spark on the driver, for each micro-batch and again after a failure."""
        try:
            with self.gate.batch(number):
                self._handle(batch, number)
        except GateClosedError:
            raise RuntimeError(_STOPPED) from None
        except BaseException as error:  # noqa: BLE001 Spark gets each as an exception
            self.error = failure(error)
            if self._coordinator.context.stopping.is_set():
                raise RuntimeError(_STOPPED) from None
            raise self.error from self.error.__cause__

    def has_finished(self, number: int) -> bool:
        """Return whether Spark has noted a micro-batch as finished."""
        return self._folder.finished() >= number

    def _handle(self, batch: DataFrame, number: int) -> None:
        try:
            offsets = self._folder.offsets(number)
            found = self._coordinator.classify(number, offsets)
        except OSError as error:
            raise self._coordinator.cannot_trigger(number, error) from error
        if isinstance(found, Replay):
            self._share_digests(batch, number, found.decision)
            self._coordinator.replay(
                found.decision, partial(self._execute, batch, number) if self._stateful else None
            )
            return
        self._share_digests(batch, number, None)
        rows = _Rows(batch, self._sinks, stateful=self._stateful)
        try:
            self._coordinator.checkpoint(number, offsets, partial(self._pre_commit, rows))
        finally:
            rows.release()

    def _execute(self, batch: DataFrame, number: int) -> None:
        """Run a committed micro-batch again for the state and watermark that Spark keeps.

        Raises:
            ReplayLostError: its records are gone or have changed; it is noted as finished.
            SourceLossError: its records are gone or have changed, and Spark needs the original
                ones; or the topic itself is gone or recreated, so that the job cannot go on either.
        """
        jobs = SparkJobs(batch.sparkSession.sparkContext, f"Checkpoint {number}, run again,")
        try:  # once it has raised, no task runs that could overwrite state which a note relies on
            jobs.run(
                {"replay": batch.write.format("noop").mode("overwrite").save},
                TIMEOUT_MAX,
                lambda _, __: None,
            )
        except SourceLossError as error:
            raise self._without_records(number, error) from error.__cause__

    def _without_records(self, number: int, loss: SourceLossError) -> TwoPhaseError:
        committed = f"Checkpoint {number} is committed in every sink, and none of its rows is lost."
        noted = self._folder.finish(self._coordinator.newest())
        # the job stops, whatever is noted
        if not isinstance(loss, OffsetOutOfRangeError | RangeChangedError):
            return type(loss)(f"{committed} {loss.what}", remedy=loss.remedy)
        if noted:
            return ReplayLostError(
                f"{committed} Spark ran it once more for the watermark, without the same records: "
                f"{loss.what} It is noted as finished, with the watermark that it ran with.",
                remedy="start the job again, if its restart strategy does not: "
                "it goes on with the next micro-batch.",
            )
        rebuild = f"{loss.remedy.rstrip('.')}; or " if isinstance(loss, RangeChangedError) else ""
        return type(loss)(
            f"{committed} But its plan keeps state, and Spark needs its records once more to "
            f"rebuild that. {loss.what}",
            remedy=rebuild + begin_afresh(number, self._folder.offsets(number)),
        )

    def _share_digests(self, batch: DataFrame, number: int, decided: Decision | None) -> None:
        """If state depends on the records, have the source note or compare their digests (H35)."""
        if not self._keeps_state:
            return
        path, generation = self._folder.path, self._coordinator.generation
        if decided is None and self._coordinator.decided_sinks(number):
            digests = range_digest.begin_again(path, number, generation)
        else:
            digests = range_digest.begin(path, number, generation, decided)
        digests.share(batch.sparkSession.sparkContext)

    def _pre_commit(self, rows: _Rows, pending: PendingCheckpoint) -> None:
        began_s = time.monotonic()
        asked = pending.missing()
        if pending.decided:
            self._share_digests(rows.frame, pending.checkpoint, None)
        jobs = SparkJobs(
            rows.frame.sparkSession.sparkContext,
            f"Checkpoint {pending.checkpoint} ({pending.attempt})",
        )
        try:
            deadline_s = began_s + self._options.timeout_s
            self._materialise(rows, jobs)
            for name in rows.without.intersection(asked):
                self._acknowledge(pending, began_s, name, [])
            jobs.run(
                {
                    name: partial(_write, rows.frame, self._sinks[name], pending.transaction(name))
                    for name in asked
                    if name not in rows.without
                },
                deadline_s - time.monotonic(),
                partial(self._acknowledge, pending, began_s),
            )
            self._folder.sync(pending.checkpoint)
        except TwoPhaseError:
            rows.forget()
            raise
        except Exception as error:
            rows.forget()
            what = f"Checkpoint {pending.checkpoint} ({pending.attempt})"
            raise as_declined(error, what) from error

    def _materialise(self, rows: _Rows, jobs: SparkJobs) -> None:
        if rows.materialise:
            jobs.run({"materialise": rows.compute}, self._options.timeout_s, lambda _, __: None)
            if self._folder.has_state:  # its tasks have run, and no sink has any rows yet
                self._shared.check()

    def _acknowledge(
        self, pending: PendingCheckpoint, began_s: float, sink: str, pieces: list[Committable]
    ) -> None:
        if self._options.mode is CheckpointMode.AT_LEAST_ONCE and len(pending.missing()) > 1:
            self._folder.sync(pending.checkpoint)  # the decision on the sink relies on the offsets
        pending.acknowledge(sink, pieces)
        self._observers(
            SinkAcknowledged(
                pending.job,
                pending.checkpoint,
                pending.attempt,
                sink,
                len(pieces),
                sum(piece.rows for piece in pieces),
                time.monotonic() - began_s,
            )
        )


class _Rows:
    """The rows of a micro-batch, computed once if several sinks or a stateful plan need that.

    Materialised by `localCheckpoint`: a lost block then fails the attempt instead of computing
    other rows for the second sink (hazard H53).

    Args:
        batch: as Spark passes it.
        sinks: by name.
        stateful: whether the plan keeps state or a watermark.
    """

    def __init__(self, batch: DataFrame, sinks: Mapping[str, JobSink], *, stateful: bool) -> None:
        self._sinks = sinks
        self._stateful = stateful
        self._batch = batch
        self._materialised: DataFrame | None = None
        session = batch.sparkSession
        if session.conf.get(_ARROW_ROWS, _ARROW_ROWS_DEFAULT) == _ARROW_ROWS_DEFAULT:
            session.conf.set(_ARROW_ROWS, _ARROW_ROWS_OURS)

    @property
    def frame(self) -> DataFrame:
        return self._materialised if self._materialised is not None else self._batch

    @cached_property
    def materialise(self) -> bool:
        """True if the rows are computed before any sink writes."""
        return (self._stateful or len(self._sinks) > 1) and not logical_plan.is_empty(self._batch)

    @cached_property
    def without(self) -> frozenset[str]:
        """The sinks that acknowledge without a job: their micro-batch has no partitions.

        The Kafka source's first micro-batch is one if the topics are empty: it makes the source's
        start durable (H55).
        """
        if not logical_plan.is_empty(self._batch):
            return frozenset()
        return frozenset(
            name
            for name, sink in self._sinks.items()
            if logical_plan.is_empty(sink.rows(self._batch))
        )

    def compute(self) -> None:
        if self._materialised is None:
            self._materialised = self._batch.localCheckpoint(eager=True)

    def forget(self) -> None:
        """Drop the materialised rows after a failure: the next attempt computes them again."""
        self.release()
        self._materialised = None

    def release(self) -> None:
        if self._materialised is not None:
            logical: Any = self._materialised._jdf.queryExecution().logical()
            logical.rdd().unpersist(False)


def _write(frame: DataFrame, sink: JobSink, transaction: TransactionId) -> list[Committable]:
    rows = _planned(frame, sink, transaction)
    match sink.sink:
        case ArrowSink():
            return write_batch(rows, sink.sink, transaction)
        case BatchSink():
            return list(sink.sink.pre_commit(rows, transaction))
        case other:
            raise TypeError(f"{type(other).__name__} is neither an ArrowSink nor a BatchSink")


def _planned(frame: DataFrame, sink: JobSink, transaction: TransactionId) -> DataFrame:
    """Return the rows for a sink, by the job's own function, which runs before any task does."""
    try:
        return sink.rows(frame)
    except TwoPhaseError:
        raise
    except Exception as error:
        what = f"{transaction}: planning its rows"
        raise declined(error, what, CheckpointFailureReason.EXCEPTION) from error
