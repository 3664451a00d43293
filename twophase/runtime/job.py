"""A running job: open, recover, start the query, restart it, stop it.

1. claim      no second query on this folder in this process (hazard H57)
2. open       every sink checks its target, side by side
3. recover    fence, commit what is decided, abort orphans (coordinator/recovery.py)
4. lineage    the current one, or a new one: a fresh start or a restore
5. folder     Spark's folder of the lineage is written, or held against the store
6. query      Spark replays the newest micro-batch where needed
7. watch      a failed query goes back to step 3 after the delay of the restart strategy
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.sql.pandas.types import to_arrow_schema

from twophase import errors
from twophase.config import JobOptions
from twophase.coordinator.clock import SystemClock
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.fan_out import SideBySide
from twophase.coordinator.recovery import Restore
from twophase.errors import ConfigError, InDoubtError, SparkLostError, StopJobError, TwoPhaseError
from twophase.events import JobRestarting, JobStopped, Observer, Observers
from twophase.ids import new_lineage_id
from twophase.protocol.listener import CheckpointedFunction, CheckpointListener
from twophase.protocol.sink import SinkContext
from twophase.runtime import plan, shuffles
from twophase.runtime.adopted import begins_without_state
from twophase.runtime.batch import BatchHandler, JobSink, declined, failure
from twophase.runtime.group_offsets import GroupOffsetsListener
from twophase.runtime.interpreter import restore_worker_python
from twophase.runtime.logging_observer import log_event
from twophase.runtime.operator_states import OperatorStates
from twophase.runtime.restart import restart_policy
from twophase.runtime.restore import load_restore, restored_checkpoint
from twophase.runtime.shared_folder import SharedFolder
from twophase.runtime.spark_folder import SparkFolder, delete_abandoned, noted_conf
from twophase.runtime.spark_threads import thread_like_this
from twophase.state.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.records import Lineage
from twophase.state.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_claimed: dict[str, str] = {}
_claims_lock = threading.Lock()


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


class Job:
    """A job that was started with `StreamWriter.start`. Safe to use from several threads."""

    def __init__(self, description: JobDescription) -> None:
        self._description = description
        self._storage = LocalStorage(description.options.checkpoint_location)
        self._observers = Observers(log_event, *description.observers)
        self._sinks = {name: entry.sink for name, entry in description.sinks.items()}
        self._legs = plan.sources(description.frame)
        self._states = OperatorStates(self._legs, description.functions)
        self._groups = GroupOffsetsListener(description.name, self._legs, self._observers)
        self._fan_out = SideBySide(partial(thread_like_this, description.frame.sparkSession, f"twophase-{self.name}"))
        context = description.frame.sparkSession.sparkContext
        self._shared = SharedFolder(self.name, context, self._storage.root / "spark")
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._generation: int | None = None
        self._query: StreamingQuery | None = None
        self._handler: BatchHandler | None = None
        self._coordinator: CheckpointCoordinator | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The job's name."""
        return self._description.name

    @property
    def description(self) -> JobDescription:
        """What it is made of."""
        return self._description

    @property
    def is_active(self) -> bool:
        """Whether the job runs or waits for a restart."""
        return not self._finished.is_set()

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query; another one after each restart."""
        return self._query

    def exception(self) -> BaseException | None:
        """What ended the job; None while it runs and after a clean stop."""
        return self._error

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended.

        Args:
            timeout_s: seconds to wait; None waits for ever.

        Returns:
            Whether it has ended.

        Raises:
            BaseException: what ended the job, unless it was stopped cleanly.
        """
        ended = self._finished.wait(timeout_s)
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Stop the job. An undecided checkpoint is aborted; a decided one is committed now or by the next start."""
        self._stopping.set()
        self._stop_query()
        self._finished.wait()

    def start(self) -> None:
        """Steps 1 to 6; called once by `StreamWriter.start`."""
        self._claim()
        try:
            self.open_sinks()
            self._start_query()
        except BaseException:
            self._close()
            self._finished.set()
            raise
        # A plain thread has none of the caller's local properties, such as the scheduler pool, so a restart would lose them.
        InheritableThread(target=self._watch, name=f"twophase-{self.name}", daemon=True).start()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        folder = str(self._storage.root.resolve())
        with _claims_lock:
            if folder in _claimed:
                raise ConfigError(
                    f"Job {self.name!r}: job {_claimed[folder]!r} runs on {folder} in this process already.",
                    remedy="stop that one first, or give this job its own checkpointLocation.",
                )
            _claimed[folder] = self.name

    def open_sinks(self) -> None:
        """Step 2: the sinks side by side. Of several that cannot be opened, the first in the user's order is reported.

        Called by `start`, and by a repair, which starts no query.
        """
        context = self._description.frame.sparkSession.sparkContext
        speculation = context.getConf().get("spark.speculation", "false") == "true"

        def open_sink(described: SinkContext, _: Observers) -> None:
            self._sinks[described.sink].open(described)

        described = (
            SinkContext(
                self.name,
                name,
                self._schema(name),
                context.defaultParallelism,
                speculation,
                self._description.options.max_concurrent,
            )
            for name in self._sinks
        )
        self._fan_out({one.sink: partial(open_sink, one) for one in described}, self._observers)
        targets: dict[str, str] = {}
        for name, sink in self._sinks.items():
            other = targets.setdefault(sink.target(), name)
            if other != name:
                raise ConfigError(
                    f"Job {self.name!r}: sinks {other!r} and {name!r} write to one target, {sink.target()}: they would "
                    "wait for each other's locks.",
                    remedy="write both from one sink, with a union before it.",
                )

    def _schema(self, name: str) -> pa.Schema:
        """The columns that the sink will see; a transform that needs a plain DataFrame fails here, before any write."""
        try:
            frame = self._description.frame
            zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
            return to_arrow_schema(self._description.sinks[name].rows(frame).schema, timezone=zone)
        except Exception as error:
            raise ConfigError(f"Job {self.name!r}: the columns for sink {name!r} cannot be known: {error}.") from error

    def _start_query(self) -> None:
        """Steps 3 to 6, if Spark's settings allow."""
        description = self._description
        frame = description.frame
        shuffles.check(self.name, frame.sparkSession, (entry.rows(frame) for entry in description.sinks.values()))
        stateful, keeps_state = plan.is_stateful(frame), plan.keeps_state(plan.analyzed(frame))
        restore = self._restore(stateful=stateful)
        coordinator = CheckpointCoordinator(
            self.name,
            self._storage,
            self._sinks,
            description.options,
            observers=self._observers,
            clock=SystemClock(),
            snapshot=self._snapshot,
            listeners=(self._groups, *self._states.listeners(), *description.listeners),
            spawn=lambda run: InheritableThread(target=run, name=f"twophase-{self.name}-commit", daemon=True),
            fan_out=self._fan_out,
            on_failure=self._stop_query,
        )
        with self._lock:
            self._coordinator = coordinator
            if self._stopping.is_set():
                coordinator.stopping.set()
        self._recover(coordinator, restore)
        if self._stopping.is_set():
            return
        if keeps_state:
            self._shared.check()
        self._begin_lineage(coordinator, restore)
        if (
            stateful
            and begins_without_state(coordinator.log.history)
            and not description.options.allow_non_restored_state
        ):
            raise ConfigError(
                f"Job {self.name!r}: its log was adopted from the targets, which hold nothing of the state that the plan keeps "
                "in Spark, or may. Nothing was written.",
                remedy="if the plan keeps none (a join with a static table, say), set restore.allow_non_restored_state.",
            )
        path = self._storage.root / "spark" / coordinator.lineage.id
        folder = SparkFolder(path, coordinator.lineage, conf=noted_conf(frame.sparkSession))
        newest = coordinator.newest()
        try:
            folder.prepare(newest)
            if not plan.has_watermark(plan.analyzed(frame)):
                folder.finish(newest)
        except TwoPhaseError:
            coordinator.log.check_fence()
            raise
        delete_abandoned(folder.path.parent, coordinator.log.history, description.options.num_retained)
        self._shared.delete_abandoned()
        self._states.initialize(coordinator.store.read(newest) if newest else self._restored(coordinator, restore))
        self._handler = handler = BatchHandler(
            coordinator,
            description.sinks,
            folder,
            self._shared,
            description.options,
            stateful=stateful,
            keeps_state=keeps_state,
            observers=self._observers,
        )
        self._run_query(folder, handler)

    def _recover(self, coordinator: CheckpointCoordinator, restore: Restore | None) -> None:
        """Step 3. A restart must not take a fence of its own, of a recovery that failed half-way, for a rival's."""
        try:
            coordinator.recover(self._generation, restore)
        except InDoubtError:
            self._generation = None
            raise
        except Exception:
            self._generation = coordinator.generation or self._generation
            raise
        self._generation = coordinator.generation

    def _snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> Mapping[str, Any]:
        self._groups.remember(checkpoint, offsets.end)
        return self._states.snapshot(checkpoint, offsets)

    def _run_query(self, folder: SparkFolder, handler: BatchHandler) -> None:
        writer = self._description.frame.writeStream.queryName(self.name).foreachBatch(handler)
        writer = writer.option("checkpointLocation", folder.uri)
        if self._description.trigger:
            writer = writer.trigger(**self._description.trigger)
        with self._lock:
            if not self._stopping.is_set():
                self._query = writer.start()

    def _restore(self, *, stateful: bool) -> Restore | None:
        """The restore that the options ask for, unless this job's folder has begun it already.

        Raises:
            ConfigError: it cannot be continued by this job.
        """
        options = self._description.options
        if options.restore_path is None:
            return None
        restore = load_restore(self.name, options.restore_path, self._storage, self._states, options)
        if restore is not None and stateful and not options.allow_non_restored_state:
            raise ConfigError(
                f"Job {self.name!r}: the plan keeps state in Spark, or may, and {options.restore_path} holds none of it. "
                "Nothing was written.",
                remedy="if the plan keeps none (a join with a static table, say), set restore.allow_non_restored_state; a "
                "stateful job goes on in its own folder only.",
            )
        return restore

    def _restored(self, coordinator: CheckpointCoordinator, restore: Restore | None) -> CompletedCheckpoint | None:
        """Whose states a lineage begins with; it may have been begun by a driver that died before its first checkpoint."""
        if restore is not None:
            return restore.checkpoint
        description = self._description
        if not description.functions:
            return None
        return restored_checkpoint(self.name, coordinator.lineage, description.options)

    def _begin_lineage(self, coordinator: CheckpointCoordinator, restore: Restore | None) -> None:
        """Step 4."""
        if restore is not None:
            coordinator.begin_lineage(restore.lineage)
        elif coordinator.log.history.lineage is None:
            if self._description.options.error_if_no_checkpoint:
                raise ConfigError(
                    f"Job {self.name!r}: {self._storage.root} has no checkpoint, and restore.error_if_no_checkpoint is set.",
                    remedy="set restore.path, or unset restore.error_if_no_checkpoint for a fresh start.",
                )
            coordinator.begin_lineage(Lineage(new_lineage_id()))

    # -- step 7 --------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        policy = restart_policy(self._description.options)
        restarts = 0
        try:
            error = self._await(self._await_query)
            while error is not None and not self._stopping.is_set():
                if self._is_spark_lost():
                    self._error = SparkLostError(
                        f"Job {self.name!r}: its Spark application has ended: {error}.", remedy="start the job again."
                    )
                    break
                delay_s = policy(time.monotonic()) if _restartable(error) else None
                if delay_s is None:
                    self._error = error
                    break
                restarts += 1
                self._observers(JobRestarting(self.name, str(error), restarts, delay_s))
                if self._stopping.wait(delay_s):
                    break
                error = self._await(self._restart)
            if isinstance(error, StopJobError):
                self._error = error  # found by a commit behind the query, while the job was being stopped
        finally:
            self._close()
            self._observers(JobStopped(self.name, str(self._error) if self._error else ""))
            self._finished.set()

    def _is_spark_lost(self) -> bool:
        try:
            return bool(self._description.frame.sparkSession.sparkContext._jsc.sc().isStopped())
        except Exception:  # noqa: BLE001 whatever the gateway says, nobody answers behind it
            return True

    def _restart(self) -> None:
        restore_worker_python(self._description.frame.sparkSession.sparkContext)
        self._start_query()
        self._await_query()

    def _await_query(self) -> None:
        """Wait for the end of the query, and of the commits behind it; raise what made either fail."""
        query, handler, coordinator = self._query, self._handler, self._coordinator
        if query is None or handler is None or coordinator is None:
            return
        try:
            query.awaitTermination()
        except Exception as error:
            coordinator.close()
            raise coordinator.failure or handler.error or declined(error, f"The query of job {self.name!r}") from error
        coordinator.close(retry=True)
        if coordinator.failure is not None:
            raise coordinator.failure
        if isinstance(handler.error, StopJobError):
            raise handler.error  # found while the query was being stopped, which then ended cleanly

    def _stop_query(self) -> None:
        """No further micro-batch may begin. Also called by the thread that commits behind the query, when it has failed."""
        with self._lock:
            coordinator, query = self._coordinator, self._query
        if coordinator is not None:
            coordinator.stopping.set()
        if query is not None:
            query.stop()

    @staticmethod
    def _await(run: Callable[[], None]) -> BaseException | None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 handed to the restart strategy
            return error if isinstance(error, TwoPhaseError) else errors.from_text(str(error)) or failure(error)
        return None

    def _close(self) -> None:
        for close in (*(sink.close for sink in self._sinks.values()), self._groups.close):
            try:
                close()
            except Exception as error:  # noqa: BLE001 the job has ended; there is nothing left to protect
                self._error = self._error or error
        with _claims_lock:
            _claimed.pop(str(self._storage.root.resolve()), None)


def _restartable(error: BaseException) -> bool:
    """Errors of others (Spark, a driver, a network) may pass; ours say so themselves."""
    return error.restartable if isinstance(error, TwoPhaseError) else True
