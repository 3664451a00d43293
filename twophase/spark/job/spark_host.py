"""Spark as the host of a job: what `write_stream` describes, run by `foreachBatch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

from twophase.contract.listener import CheckpointedFunction, CheckpointListener
from twophase.contract.sink import SinkContext
from twophase.contract.source import SourceLeg
from twophase.contract.source_entry_points import source_of
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine.host import Handle, Plan
from twophase.engine.restart import waits_of
from twophase.errors import ConfigError, SparkLostError, StopJobError, TwoPhaseError, carried
from twophase.events import GroupOffsetsDelayed, Observer, Observers, SinksChained
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.abandoned_folders import delete_abandoned
from twophase.options.job_options import Chaining as ChainingOption
from twophase.options.job_options import CheckpointMode, JobOptions
from twophase.spark.batch.batch import ForeachBatch, JobSink, SparkBatch, SparkQuery
from twophase.spark.batch.chaining import Chaining
from twophase.spark.batch.shared_folder import SharedFolder
from twophase.spark.batch.spark_errors import failure
from twophase.spark.batch.spark_jobs import is_lost, thread_like_this
from twophase.spark.folder import checkpoint_files, folder_formats, state_backend
from twophase.spark.folder.noted_settings import noted_conf
from twophase.spark.folder.planned_release import plan_release
from twophase.spark.folder.query_folder import check_root
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.job import start_check
from twophase.spark.job.lineage_start import LineageStart
from twophase.spark.plan import logical_plan, shuffles, state_plan
from twophase.spark.plan.operator_states import OperatorStates
from twophase.spark.startup.worker_interpreter import (
    restore_worker_python,
    use_this_python,
)
from twophase.spark_versions import to_arrow_schema
from twophase.state.checkpoints.checkpoint import FrozenOffsets, OperatorStateFields
from twophase.state.files.storage import LocalStorage, local_path
from twophase.state.journal.entries import Lineage
from twophase.state.journal.history import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_APART = "with checkpoint.mode=at_least_once each sink is written on its own"


@dataclass(frozen=True)
class JobDescription:
    """Everything a job is made of. See `StreamWriter` for the fields."""

    name: str
    frame: DataFrame
    sinks: Mapping[str, JobSink]
    options: JobOptions
    trigger: Mapping[str, Any]
    listeners: tuple[CheckpointListener, ...]
    functions: Mapping[str, CheckpointedFunction]
    observers: tuple[Observer, ...]


class SparkHost:
    """See `twophase.engine.host.QueryHost`.

    Args:
        description: of the job.
        observers: receive every event.

    Raises:
        ConfigError: the folder is that of a Spark query, an option of a source is wrong, Spark
            refuses the plan or the trigger, or a transform gives no rows; nothing was written.

    Attributes:
        clock: the machine's.
        states: the operator states.
        notifications: tells the sources of complete checkpoints.
        query: Spark's query, once it has started; another one after each restart.
    """

    def __init__(self, description: JobDescription, observers: Observers) -> None:
        check_root(local_path(description.options.checkpoint_location))
        start_check.check(description.name, description.frame, description.trigger)
        use_this_python(description.frame.sparkSession.sparkContext)
        self.clock = SystemClock()
        legs = logical_plan.sources(description.frame)
        self.states = OperatorStates(
            legs, description.functions, state_plan.describe(description.frame)
        )
        self.notifications = SourceNotifications(description.name, legs, observers)
        self._legs = legs
        self._description = description
        for sink in description.sinks:
            self._rows_of(sink)
        self._observers = observers
        self._declared = {name: entry.sink for name, entry in description.sinks.items()}
        self._spark = description.frame.sparkSession
        self._storage = LocalStorage(description.options.checkpoint_location)
        self.query: StreamingQuery | None = None
        self._root = self._storage.root / "spark"
        self._shared = SharedFolder(description.name, self._spark.sparkContext, self._root)

    def thread(self, name: str, run: Callable[[], None]) -> InheritableThread:
        """See `Host.thread`: with Spark's local properties, such as the scheduler pool."""
        return thread_like_this(self._spark, name, run)

    def plan(self) -> Plan:
        """See `Host.plan`."""
        restore_worker_python(self._spark.sparkContext)
        job, frame = self._description, self._description.frame
        folder_formats.check(f"Job {job.name!r}", self._spark.conf)
        shuffles.check(job.name, self._spark, map(self._rows_of, job.sinks))
        analyzed = logical_plan.analyzed(frame)
        return Plan(
            logical_plan.is_stateful(frame),
            logical_plan.keeps_state(analyzed),
            logical_plan.has_watermark(analyzed),
            state_backend.wanted_settings(job.name, job.options, self._spark),
            self.states.skips_existing,
        )

    def sink_context(self, sink: str) -> SinkContext:
        """See `Host.sink_context`. A transform that needs a plain DataFrame fails here."""
        job, context = self._description, self._spark.sparkContext
        chaining = self._chaining
        zone = self._spark.conf.get("spark.sql.session.timeZone")
        schema = to_arrow_schema(self._rows_of(sink).schema, timezone=zone)
        return SinkContext(
            job.name,
            sink,
            schema,
            context.defaultParallelism,
            context.getConf().get("spark.speculation", "false") == "true",
            job.options.max_concurrent,
            beside=chaining.beside(sink) * context.defaultParallelism if chaining else 0,
            waits=waits_of(job.options),
        )

    def beginning(self, context: JobContext, plan: Plan) -> LineageStart:
        """See `Host.beginning`."""
        check_shared = self._shared.check if plan.keeps_state else None
        beginning = LineageStart(
            context,
            self._storage,
            self.states,
            plan,
            self._declared,
            check_shared,
            self.notifications.notify_rewound,
        )
        try:
            if plan.stateful and plan.settings:
                options = self._description.options
                state_backend.check_noted(context.job, options, beginning.noted_header())
        except BaseException:
            beginning.close()
            raise
        return beginning

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:
        """See `Host.snapshot`."""
        self.notifications.remember(checkpoint, offsets.end)
        return self.states.snapshot(checkpoint, offsets)

    def folder(self, lineage: Lineage) -> SparkFolder:
        """See `Host.folder`."""
        return SparkFolder(self._root / lineage.id, lineage, conf=noted_conf(self._spark))

    def delete_folders(self, history: History) -> None:
        """See `Host.delete_folders`."""
        delete_abandoned(self._root, history, self._description.options.num_retained)
        self._shared.delete_abandoned()

    def start(
        self,
        coordinator: CheckpointCoordinator,
        folder: SparkFolder,
        plan: Plan,
        handle: Handle,
    ) -> SparkQuery:
        """See `QueryHost.start`."""
        job = self._description
        self.notifications.begin(coordinator.lineage)
        plan_release(folder, coordinator.lineage, coordinator.context.history, self.clock.unix_ms())
        new_batch = partial(
            SparkBatch, coordinator, job.sinks, folder, self._shared, plan, legs=self._legs
        )
        if (chaining := self._chaining) is not None:
            self._observers(SinksChained(job.name, chaining.chained, chaining.unchained))
            new_batch = partial(new_batch, chaining=chaining, planned=folder.planned())
        handler = ForeachBatch(new_batch, handle, coordinator.context.stopping)
        writer = job.frame.writeStream.queryName(job.name).foreachBatch(handler)
        writer = writer.option("checkpointLocation", folder.uri)
        if job.trigger:
            writer = writer.trigger(**job.trigger)
        query: StreamingQuery | None = None
        try:
            settings = {
                **shuffles.settings(self._spark),
                **checkpoint_files.settings(self._spark, stateful=plan.stateful),
                **plan.settings,
            }
            with state_backend.applied(self._spark, settings):
                query = self.query = writer.start()
        except BaseException:
            if query is not None:  # nobody else could stop it
                query.stop()
            raise
        return SparkQuery(query, handler, job.name, self._spark)

    @cached_property
    def _chaining(self) -> Chaining | None:
        """What chains to the source; None if nothing is to."""
        job = self._description
        if job.options.chaining is not ChainingOption.AUTO:
            return None
        sinks = {name: (one.sink, self._rows_of(name)) for name, one in job.sinks.items()}
        alone = job.options.mode is CheckpointMode.AT_LEAST_ONCE and len(sinks) > 1
        return Chaining(job.frame, sinks, _APART if alone else "")

    def _rows_of(self, sink: str) -> DataFrame:
        job = self._description
        try:
            return job.sinks[sink].rows(job.frame)
        except TwoPhaseError:
            raise
        except Exception as error:
            raise ConfigError(
                f"Job {job.name!r}: the columns for sink {sink!r} cannot be known: {error}. "
                "Nothing was written.",
                remedy="correct the function `transform` of that sink: it returns the rows for it, "
                "a DataFrame.",
            ) from error

    def failed(self, error: BaseException) -> BaseException:
        """See `QueryHost.failed`. A StopJobError stays one, whatever has become of Spark."""
        found = carried(error) or failure(error)
        if isinstance(found, StopJobError) or not is_lost(self._spark):
            return found
        return SparkLostError(
            f"Job {self._description.name!r}: its Spark application has ended: {error}.",
            remedy="start the job again.",
        )

    def close(self) -> None:
        """See `QueryHost.close`."""
        self.notifications.close()


class SourceNotifications:
    """Tells every source of a job that a checkpoint is complete, such as for group offsets.

    These inform other tools (lag monitors, a later start from `committed`); the job itself never
    needs them, so a failure is an event and the next checkpoint covers it.

    Args:
        job: the job's name.
        legs: the sources of the plan, in plan order.
        observers: notified of failures.

    Raises:
        ConfigError: an option of a source is wrong.
    """

    def __init__(self, job: str, legs: Sequence[SourceLeg], observers: Observers) -> None:
        self._job = job
        self._observers = observers
        self._sources = [(leg, source_of(leg.name)) for leg in legs]
        self._lines: dict[int, tuple[str | None, ...]] = {}
        self._maybe_ahead: set[int] = set()
        for leg, source in self._sources:
            source.check_options(leg)

    def begin(self, lineage: Lineage) -> None:
        """Begin a run. What others were told before a restore may be ahead of it: nobody knows
        whether an older driver could take that back.
        """
        self._maybe_ahead = {*range(len(self._sources))} if lineage.ancestors else set()

    def remember(self, checkpoint: int, lines: tuple[str | None, ...]) -> None:
        """Keep the end offsets of a checkpoint until it is complete."""
        self._lines[checkpoint] = lines

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        """Notify the sources of a checkpoint."""
        lines = self._lines.pop(checkpoint, None)
        self._lines = {later: kept for later, kept in self._lines.items() if later > checkpoint}
        self._notify(checkpoint, lines or (), self._committed)

    def notify_rewound(self, checkpoint: int, lines: Sequence[str | None]) -> None:
        """Notify the sources that the job goes back to a checkpoint, with its end offsets."""
        self._notify(checkpoint, lines, self._rewound)

    def _committed(self, place: int, line: str) -> None:
        if place in self._maybe_ahead:
            self._rewound(place, line)
        leg, source = self._sources[place]
        source.notify_committed(leg, line)
        self._maybe_ahead.discard(place)

    def _rewound(self, place: int, line: str) -> None:
        leg, source = self._sources[place]
        source.notify_rewound(leg, line)

    def _notify(
        self, checkpoint: int, lines: Sequence[str | None], tell: Callable[[int, str], None]
    ) -> None:
        for place, line in enumerate(lines):
            if line is None:
                continue
            try:
                tell(place, line)
            except Exception as error:  # noqa: BLE001 offsets inform only; the data is committed
                self._observers(
                    GroupOffsetsDelayed(self._job, checkpoint, f"{type(error).__name__}: {error}")
                )

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        """Do nothing: no source was told of it."""

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        """Do nothing: the sources have heard of newer ones."""

    def close(self) -> None:
        """Close the connections.

        Raises:
            Exception: the first failure. The other sources are closed nevertheless.
        """
        failures: list[Exception] = []
        for leg, source in self._sources:
            try:
                source.close(leg)
            except Exception as error:  # noqa: BLE001 the first one is raised below
                failures.append(error)
        if failures:
            raise failures[0]
