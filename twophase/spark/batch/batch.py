"""A micro-batch on Spark: what `foreachBatch` is given, and how Spark is told the outcome.

2. materialise   rows that several sinks read, or a plan with state makes, are computed once
3. pre-commit    all sinks write concurrently; then what Spark wrote for the batch is made durable.
                 A micro-batch without partitions is decided like any other (hazard rule HD6),
                 without asking any sink. A sink that is ahead, from an earlier attempt, is not
                 asked either

Spark takes a normal return of the function for success (hazards H54, H56): `ForeachBatch` raises
unless the micro-batch is decided, even while the query is being stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenArrowSink, Sink
from twophase.contract.source import SourceLeg
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine.batch_gate import GateClosedError
from twophase.engine.host import Handle, Plan
from twophase.errors import (
    OffsetOutOfRangeError,
    PartitionVanishedError,
    RangeChangedError,
    ReplayLostError,
    SourceLossError,
    StopJobError,
    TopicRecreatedError,
    TwoPhaseError,
)
from twophase.events import SinkAcknowledged
from twophase.failure_reason import CheckpointFailureReason
from twophase.ids import TransactionId
from twophase.options.job_options import CheckpointMode
from twophase.spark.batch.chain import Chain
from twophase.spark.batch.chaining import Chaining
from twophase.spark.batch.lost_replay_remedy import begin_afresh
from twophase.spark.batch.shared_folder import SharedFolder
from twophase.spark.batch.spark_errors import as_declined, declined, failure
from twophase.spark.batch.spark_jobs import SparkJobs, is_lost
from twophase.spark.batch.writer_task import pre_commit
from twophase.spark.folder.planned_reads import check_present, check_undecided
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.plan import logical_plan
from twophase.state.checkpoints import replay_guard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from twophase.state.journal.entries import Decision

_POLL_S = 1
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
        sink: the declared sink.
        transform: makes this sink's rows from the job's rows; None passes them as they are.
    """

    sink: Sink
    transform: Callable[[DataFrame], DataFrame] | None = None

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows for this sink.

        Raises:
            TypeError: the transform returns something else.
        """
        rows = self.transform(frame) if self.transform else frame
        if not isinstance(rows, ClassicDataFrame):
            kind = type(rows).__name__
            raise TypeError(f"the function `transform` returned a {kind}, not a DataFrame")
        return rows


class ForeachBatch:
    """The function that Spark calls for each micro-batch.

    Args:
        new_batch: makes a micro-batch of what Spark passes.
        handle: the engine's.
        stopping: set when the job is to stop.

    Attributes:
        error: the failure of the last micro-batch; Spark keeps only its text.
    """

    def __init__(
        self,
        new_batch: Callable[[DataFrame, int], SparkBatch],
        handle: Handle,
        stopping: threading.Event,
    ) -> None:
        self.error: Exception | None = None
        self._new_batch = new_batch
        self._handle = handle
        self._stopping = stopping
        self._under_way = threading.Lock()

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Called by Spark on the driver, for each micro-batch and again after a failure."""
        with self._under_way:
            self._take(frame, number)

    def wait(self) -> None:
        """Wait for the end of the call under way: Spark does not, when a query is stopped."""
        with self._under_way:
            return

    def give_up(self) -> None:
        """Let the call under way wait for nothing: its Spark is lost."""
        self._stopping.set()

    def _take(self, frame: DataFrame, number: int) -> None:
        try:
            with closing(self._new_batch(frame, number)) as batch:
                self._handle(number, batch)
        except GateClosedError:
            raise RuntimeError(_STOPPED) from None
        except BaseException as error:  # noqa: BLE001 Spark gets each as an exception
            self.error = failure(error)
            if self._stopping.is_set():
                raise RuntimeError(_STOPPED) from None
            raise self.error from self.error.__cause__


class SparkQuery:
    """Spark's query. See `twophase.engine.host.Query`.

    Args:
        query: of Spark.
        handler: called for its micro-batches.
        job: the job's name.
        session: that it runs in.
    """

    def __init__(
        self, query: StreamingQuery, handler: ForeachBatch, job: str, session: SparkSession
    ) -> None:
        self._query = query
        self._handler = handler
        self._job = job
        self._session = session

    @property
    def is_active(self) -> bool:
        """See `Query.is_active`."""
        return self._query.isActive

    def wait(self) -> None:
        """See `Query.wait`."""
        try:
            self._await_termination()
        except Exception as error:
            query = f"The query of job {self._job!r}"
            raise self._handler.error or declined(error, query) from error
        if isinstance(self._handler.error, StopJobError):
            raise self._handler.error  # found while the query was being stopped: it ended cleanly

    def _await_termination(self) -> None:
        try:
            while not self._query.awaitTermination(_POLL_S):
                if is_lost(self._session):  # Spark would let the query wait for its next trigger
                    self.stop()
                    raise RuntimeError("spark.stop() was called")
        except Exception:
            if is_lost(self._session):
                self._handler.give_up()
            raise
        finally:
            self._handler.wait()

    def stop(self) -> None:
        """See `Query.stop`."""
        try:
            self._query.stop()
        except Exception:
            if not is_lost(self._session):
                raise


class SparkBatch:
    """One micro-batch of Spark. See `twophase.engine.host.MicroBatch`.

    Args:
        coordinator: recovered.
        sinks: by name.
        folder: Spark's folder of the lineage.
        shared: the folder around it, which the executors must share.
        plan: of the job.
        frame: as Spark passes it.
        number: n.
        chaining: what chains to the source; None for nothing.
        planned: the newest micro-batch that an earlier run of the query has planned; -1 for none.
        legs: the sources, in plan order.
    """

    def __init__(
        self,
        coordinator: CheckpointCoordinator,
        sinks: Mapping[str, JobSink],
        folder: SparkFolder,
        shared: SharedFolder,
        plan: Plan,
        frame: DataFrame,
        number: int,
        chaining: Chaining | None = None,
        planned: int = -1,
        legs: Sequence[SourceLeg] = (),
    ) -> None:
        self._legs = legs
        self._number = number
        self._chaining = chaining
        self._planned = planned
        self._coordinator = coordinator
        self._sinks = sinks
        self._folder = folder
        self._shared = shared
        self._plan = plan
        self._rows = _Rows(frame, sinks, stateful=plan.stateful)

    def begin(self, decided: Decision | None) -> None:
        """See `MicroBatch.begin`: have the source note or compare digests, if state needs that.

        Raises:
            SourceLossError: what it is to read is gone, and Spark would leave that out.
        """
        if decided is None:
            check_undecided(self._folder, self._number, self._legs)
        if not self._plan.keeps_state:
            return
        path, generation = self._folder.path, self._coordinator.generation
        if decided is None and self._coordinator.decided_sinks(self._number):
            digests = replay_guard.begin_again(path, self._number, generation)
        else:
            digests = replay_guard.begin(path, self._number, generation, decided)
        digests.share(self._rows.frame.sparkSession.sparkContext)

    def execute(self) -> None:
        """See `MicroBatch.execute`.

        Raises:
            ReplayLostError: its records are gone or have changed; it is noted as finished.
            SourceLossError: its records are gone or have changed, and Spark needs the original
                ones; or the topic itself is gone or recreated, so that the job cannot go on either.
        """
        frame, number = self._rows.frame, self._number
        jobs = SparkJobs(
            frame.sparkSession.sparkContext, f"Checkpoint {number}, run again,", TIMEOUT_MAX
        )
        try:
            check_present(self._folder, number, self._legs)
            # once it has raised, no task runs that could overwrite state which a note relies on
            replay = frame.write.format("noop").mode("overwrite").save
            jobs.run({"replay": replay}, lambda _, __: None)
        except SourceLossError as error:
            raise self._without_records(error) from error.__cause__
        check_present(self._folder, number, self._legs)  # not noted: the new state may lack rows

    def pre_commit(self, pending: PendingCheckpoint) -> None:
        """See `MicroBatch.pre_commit`."""
        began_s, rows = time.monotonic(), self._rows
        asked = pending.missing()
        if pending.decided:
            self.begin(None)
        jobs = SparkJobs(
            rows.frame.sparkSession.sparkContext,
            f"Checkpoint {pending.checkpoint} ({pending.attempt})",
            self._coordinator.options.timeout_s,
        )
        try:
            chain, planned = self._chain(jobs, pending)
            alone = [name for name in asked if name not in rows.without | _sinks_of(chain)]
            self._materialise(jobs, alone)
            for name in rows.without.intersection(asked):
                self._acknowledge(pending, began_s, name, [])
            if rows.frame is not rows.batch:
                planned = {}
            work: dict[str, Callable[[], Mapping[str, list[Committable]]]] = {
                name: partial(self._write, name, pending.transaction(name), planned.get(name))
                for name in alone
            }
            if chain is not None:
                work[chain.name] = partial(self._run, chain, count=not alone)
            jobs.run(work, lambda _, made: self._acknowledge_all(pending, began_s, made))
            self._secure()
        except TwoPhaseError:
            rows.forget()
            raise
        except Exception as error:
            rows.forget()
            what = f"Checkpoint {pending.checkpoint} ({pending.attempt})"
            raise as_declined(error, what) from error

    def close(self) -> None:
        """Release the rows."""
        self._rows.release()

    def _without_records(self, loss: SourceLossError) -> TwoPhaseError:
        number = self._number
        committed = f"Checkpoint {number} is committed in every sink, and none of its rows is lost."
        noted = self._folder.finish(self._coordinator.newest())
        never_returns = isinstance(loss, TopicRecreatedError | PartitionVanishedError)
        if noted and not never_returns:  # otherwise the job stops, whatever is noted
            return ReplayLostError(
                f"{committed} Spark ran it once more for the watermark, without the same records: "
                f"{loss.what} It is noted as finished, with the watermark that it ran with.",
                remedy="start the job again, if its restart strategy does not: "
                "it goes on with the next micro-batch.",
            )
        if not isinstance(loss, OffsetOutOfRangeError | RangeChangedError):
            return type(loss)(f"{committed} {loss.what}", remedy=loss.remedy)
        rebuild = f"{loss.remedy.rstrip('.')}; or " if isinstance(loss, RangeChangedError) else ""
        return type(loss)(
            f"{committed} But its plan keeps state, and Spark needs its records once more to "
            f"rebuild that. {loss.what}",
            remedy=rebuild + begin_afresh(number, self._folder.offsets(number)),
        )

    def _secure(self) -> None:
        """Check and make durable what a decision, also that on a sink, relies on: what was read,
        and the offsets.
        """
        check_undecided(self._folder, self._number, self._legs)
        self._folder.sync(self._number)

    def _write(
        self, name: str, transaction: TransactionId, planned: DataFrame | None
    ) -> dict[str, list[Committable]]:
        rows = planned
        if rows is None:
            rows = _planned(self._rows.frame, self._sinks[name], transaction)
        return {name: pre_commit(rows, self._coordinator.sinks[name], transaction)}

    def _run(self, chain: Chain, *, count: bool) -> Mapping[str, list[Committable]]:
        """Run a chain.

        Args:
            chain: some of the sinks.
            count: whether Spark would count no records, because no other sink reads them.
        """
        written = chain.run(self._rows.batch.sparkSession)
        if count and self._chaining is not None:
            self._chaining.add_to_progress(written.records)
        return written.pieces

    def _chain(
        self, jobs: SparkJobs, pending: PendingCheckpoint
    ) -> tuple[Chain | None, dict[str, DataFrame]]:
        """Return the chain of the sinks that are asked and chain in this micro-batch; and the rows
        of each sink that was looked at.
        """
        chaining = self._chaining
        asked = [] if chaining is None else [*chaining.chained]
        asked = [name for name in pending.missing() if name in asked]
        if chaining is None or not set(asked) - self._rows.without:
            return None, {}
        found: list[Chain | None] = []
        planned: dict[str, DataFrame] = {}
        plan = partial(self._plan_chain, chaining, pending, asked, planned)
        jobs.run({"chain plan": plan}, lambda _, chain: found.append(chain))
        return found[0], planned

    def _plan_chain(
        self,
        chaining: Chaining,
        pending: PendingCheckpoint,
        asked: Sequence[str],
        planned: dict[str, DataFrame],
    ) -> Chain | None:
        batch = self._rows.batch
        sinks: dict[str, tuple[OpenArrowSink, DataFrame]] = {}
        for name in asked:
            sink = self._coordinator.sinks[name]
            if isinstance(sink, OpenArrowSink):
                planned[name] = _planned(batch, self._sinks[name], pending.transaction(name))
                sinks[name] = sink, planned[name]
        again = pending.checkpoint <= self._planned
        return chaining.chain(batch, pending, sinks, again=again)

    def _materialise(self, jobs: SparkJobs, sinks: Collection[str]) -> None:
        if self._rows.materialise(sinks):
            jobs.run({"materialise": self._rows.compute}, lambda _, __: None)
            if self._folder.has_state:  # its tasks have run, and no sink has any rows yet
                self._shared.check()

    def _acknowledge_all(
        self, pending: PendingCheckpoint, began_s: float, made: Mapping[str, list[Committable]]
    ) -> None:
        for sink, pieces in made.items():
            self._acknowledge(pending, began_s, sink, pieces)

    def _acknowledge(
        self, pending: PendingCheckpoint, began_s: float, sink: str, pieces: list[Committable]
    ) -> None:
        mode = self._coordinator.options.mode
        if mode is CheckpointMode.AT_LEAST_ONCE and len(pending.missing()) > 1:
            self._secure()
        pending.acknowledge(sink, pieces)
        self._coordinator.context.observers(
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

    Attributes:
        batch: as given.
    """

    def __init__(self, batch: DataFrame, sinks: Mapping[str, JobSink], *, stateful: bool) -> None:
        self._sinks = sinks
        self._stateful = stateful
        self.batch = batch
        self._materialised: DataFrame | None = None
        session = batch.sparkSession
        if session.conf.get(_ARROW_ROWS, _ARROW_ROWS_DEFAULT) == _ARROW_ROWS_DEFAULT:
            session.conf.set(_ARROW_ROWS, _ARROW_ROWS_OURS)

    @property
    def frame(self) -> DataFrame:
        return self._materialised if self._materialised is not None else self.batch

    def materialise(self, sinks: Collection[str]) -> bool:
        """Return whether the rows are computed before any sink writes.

        Args:
            sinks: those that use them.
        """
        return (self._stateful or len(sinks) > 1) and not logical_plan.is_empty(self.batch)

    @cached_property
    def without(self) -> frozenset[str]:
        """The sinks that acknowledge without a job: their micro-batch has no partitions.

        The Kafka source's first micro-batch is one if the topics are empty: it makes the source's
        start durable (H55).
        """
        if not logical_plan.is_empty(self.batch):
            return frozenset()
        return frozenset(
            name
            for name, sink in self._sinks.items()
            if logical_plan.is_empty(sink.rows(self.batch))
        )

    def compute(self) -> None:
        if self._materialised is None:
            self._materialised = self.batch.localCheckpoint(eager=True)

    def forget(self) -> None:
        """Drop the materialised rows after a failure: the next attempt computes them again."""
        self.release()
        self._materialised = None

    def release(self) -> None:
        if self._materialised is not None:
            logical: Any = self._materialised._jdf.queryExecution().logical()
            logical.rdd().unpersist(False)


def _sinks_of(chain: Chain | None) -> frozenset[str]:
    return frozenset(link.sink for link in chain.links) if chain is not None else frozenset()


def _planned(frame: DataFrame, sink: JobSink, transaction: TransactionId) -> DataFrame:
    """Return the rows for a sink, by the job's own function, which runs before any task does."""
    try:
        return sink.rows(frame)
    except TwoPhaseError:
        raise
    except Exception as error:
        what = f"{transaction}: planning its rows"
        raise declined(error, what, CheckpointFailureReason.EXCEPTION) from error
