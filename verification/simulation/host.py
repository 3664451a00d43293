"""Spark as the host of a job, simulated: `twophase.spark.job.spark_host`, without Spark.

Real: the engine that it serves, the beginning of a lineage, Spark's folder, the function that runs
in each task. Simulated: the query. Its thread plans a micro-batch, has it handled and notes it as
finished. A stop of it cancels the tasks of the micro-batch under way, of which some end late, and
waits until the thread has ended, which notes a micro-batch that was decided, or does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pymysql

from twophase.contract.sink import SinkContext
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.plan import Restore
from twophase.engine.batch_gate import GateClosedError
from twophase.engine.host import Beginning, Handle, Plan
from twophase.errors import DeclinedError, InDoubtError, StopJobError
from twophase.events import Event as JobEvent
from twophase.events import RecoveryStarted
from twophase.functions.operator_state import Redistribution
from twophase.operations.savepoint.abandoned_folders import delete_abandoned
from twophase.options.job_options import CheckpointMode, JobOptions
from twophase.spark.job.lineage_start import LineageStart
from twophase.state.checkpoints.checkpoint import FrozenOffsets, OperatorStateFields, SourceState
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Decision, Lineage
from twophase.state.journal.history import History
from verification.simulation.decisions import Piece
from verification.simulation.job import JOB, SourceStates, sink_context
from verification.simulation.query_folder import QueryFolder
from verification.simulation.scheduler import Process
from verification.simulation.spark import Executors
from verification.simulation.telling import Started
from verification.simulation.threads import Event, SimulatedClock, Thread
from verification.simulation.watched_sink import OpenWatchedSink, WatchedSink

if TYPE_CHECKING:
    from verification.simulation.world import World

_SPARK_S = 0.01


class SimulatedHost:
    """See `twophase.engine.host.QueryHost`.

    Args:
        world: where it is.
        process: of the driver.
        options: of the job.
        sinks: declared, by name.
        executors: run the tasks.
        goal: how many chunks of the input are to be written.
        judge: hears of what ends a run of the query.

    Attributes:
        clock: the simulated time.
        threads: those that were made.
        query: the newest one.
        judge: as given.
        stays: whether the query goes on when it has reached its goal, until it is stopped.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        options: JobOptions,
        sinks: Mapping[str, WatchedSink],
        executors: Executors,
        goal: int,
        judge: Callable[[Exception], None],
    ) -> None:
        self.clock = SimulatedClock(world.scheduler)
        self.threads: list[Thread] = []
        self.query: SimulatedQuery | None = None
        self.stays = False
        self.world = world
        self.process = process
        self.executors = executors
        self.goal = goal
        self._options = options
        self._sinks = sinks
        self.judge = judge
        self._storage: LocalStorage | None = None
        self._failure: Exception | None = None
        self._tell: Callable[[JobEvent], None] = lambda event: None

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """See `Host.thread`."""
        kind = name.removeprefix(f"twophase-{JOB}").lstrip("-") or "watch"
        thread = Thread(self.world.scheduler, self.process, f"{self.process.name}.{kind}", run)
        self.threads.append(thread)
        return thread

    def sink_context(self, sink: str) -> SinkContext:
        """See `Host.sink_context`."""
        return sink_context(self.world, sink)

    def plan(self) -> Plan:
        """See `Host.plan`. One that reads other sources than a savepoint's has no watermark."""
        watermark = self.world.options.watermark and not self.world.reads_other_sources
        return Plan(stateful=watermark, keeps_state=False, has_watermark=watermark)

    def beginning(self, context: JobContext, plan: Plan) -> Beginning:
        """See `Host.beginning`. Here a coordinator begins."""
        world, process = self.world, self.process
        world.oracle.holds(
            getattr(self._failure, "restartable", True),
            f"I8: {process.name} goes on after {self._failure!r}",
        )
        world.oracle.aborted.discard(process)
        self._storage = self._storage or LocalStorage(self._options.checkpoint_location)
        states = SourceStates(same=not world.reads_other_sources)
        start = LineageStart(context, self._storage, states, plan, self._sinks)
        restore, path = start.restore, self._options.restore_path
        savepoint = _of_savepoint(restore) if path in world.oracle.saved.by_path else None
        started = Started(
            JOB,
            self._options.checkpoint_location,
            tuple(self._sinks),
            restores=restore is not None,
            savepoint=savepoint,
            restored=path or "" if restore else "",
        )
        self._tell = world.telling.begin(process, started)
        return WatchedStart(world, context, start)

    def folder(self, lineage: Lineage) -> QueryFolder:
        """See `Host.folder`."""
        world = self.world
        return QueryFolder(world.disk, self._root / lineage.id, lineage, world.starting)

    def delete_folders(self, history: History) -> None:
        """See `Host.delete_folders`."""
        delete_abandoned(self._root, history, self._options.num_retained)

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:
        """See `Host.snapshot`."""
        state = SourceState("simulated", "", Redistribution.UNION, (*offsets.end,))
        return {"sources": (state,)}

    def start(
        self,
        coordinator: CheckpointCoordinator,
        folder: QueryFolder,
        plan: Plan,
        handle: Handle,
    ) -> SimulatedQuery:
        """See `QueryHost.start`."""
        self.world.oracle.holds(
            self.process not in self.world.oracle.stopped,
            f"{self.process.name} was stopped, and its query begins",
        )
        self.query = SimulatedQuery(self, coordinator, folder, handle)
        return self.query

    def failed(self, error: BaseException) -> BaseException:
        """See `QueryHost.failed`. Whoever dies handles nothing."""
        if not isinstance(error, Exception):
            raise error
        if isinstance(error, InDoubtError):
            self.world.oracle.owners.discard(self.process)
        self._failure = error
        self.judge(error)
        return error

    def close(self) -> None:
        """See `QueryHost.close`: there is nothing to release."""

    def tell(self, event: JobEvent) -> None:
        """Tell an event, as the coordinator that has begun last."""
        if isinstance(event, RecoveryStarted):
            self.world.oracle.takes_over(self.process, event.generation)
        self._tell(event)

    @property
    def _root(self) -> Path:
        return cast(Path, self.world.path(f"{self._options.checkpoint_location}/spark"))


class WatchedStart:
    """See `twophase.engine.host.Beginning`: the real one; the oracle hears of the recovery.

    Args:
        world: where.
        context: of the run.
        start: the real one.
    """

    def __init__(self, world: World, context: JobContext, start: LineageStart) -> None:
        self._oracle = world.oracle
        self._context = context
        self._start = start
        self._missing, self._changes = {*world.oracle.undone}, world.oracle.changes

    @property
    def restore(self) -> Restore | None:
        """See `Beginning.restore`."""
        return self._start.restore

    def begin(self, coordinator: CheckpointCoordinator) -> None:
        """See `Beginning.begin`: the job was recovered."""
        hashes = [
            sink.hash for sink in self._context.sinks.values() if isinstance(sink, OpenWatchedSink)
        ]
        unchanged, missing = self._oracle.changes == self._changes, self._missing
        if (restore := self.restore) is not None:
            missing = {xid for xid in missing if not Piece.of(xid).is_after(restore.keep)}
        self._oracle.recovered(hashes if unchanged else [], coordinator.generation, missing)
        self._start.begin(coordinator)

    def initialize_states(self, coordinator: CheckpointCoordinator) -> None:
        """See `Beginning.initialize_states`."""
        self._start.initialize_states(coordinator)

    def close(self) -> None:
        """See `Beginning.close`."""
        self._start.close()


class SimulatedQuery:
    """See `twophase.engine.host.Query`.

    Args:
        host: where it runs.
        coordinator: recovered.
        folder: Spark's folder of the lineage.
        handle: the engine's.

    Attributes:
        reached: whether it has reached its goal.
    """

    def __init__(
        self,
        host: SimulatedHost,
        coordinator: CheckpointCoordinator,
        folder: QueryFolder,
        handle: Handle,
    ) -> None:
        self.reached = False
        self._host = host
        self._scheduler = host.world.scheduler
        self._coordinator = coordinator
        self._folder = folder
        self._handle = handle
        self._error: Exception | None = None
        self._stopping = Event(self._scheduler)
        self._under_way: int | None = None
        self._thread = Thread(
            self._scheduler, host.process, f"{host.process.name}.query", self._run
        )
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """See `Query.is_active`."""
        return self._thread.is_alive

    def wait(self) -> None:
        """See `Query.wait`."""
        self._thread.join()
        if self._error is None:
            return
        if not self._coordinator.context.stopping.is_set() or isinstance(self._error, StopJobError):
            raise self._error
        self._host.judge(self._error)  # nobody else hears of it

    def stop(self) -> None:
        """See `Query.stop`. A job that is to leave a savepoint decides its micro-batch before,
        unless the process dies, whose threads have no effect any more.
        """
        host, failed = self._host, self._coordinator.failure is not None
        may_cancel = failed or host.process.dead or host.process not in host.world.oracle.saving
        host.world.oracle.holds(
            self._under_way is None or may_cancel,
            f"{host.process.name} was stopped with a savepoint, and micro-batch "
            f"{self._under_way} is cancelled",
        )
        self._stopping.set()
        self._host.executors.cancel()
        self._thread.join()

    def _run(self) -> None:
        """Spark's thread of the query: plan, run, note as finished; then the next one."""
        folder, host, step = self._folder, self._host, self._scheduler.step
        batch = folder.next()
        while folder.chunk(batch) < host.goal and not self._stopping.is_set():
            step("spark plans", _SPARK_S)
            folder.plan(batch)
            if not self._is_handled(batch):
                return
            step("spark finishes", _SPARK_S)
            if self._stopping.is_set() and self._scheduler.random.random() < 0.5:
                return
            folder.note(batch)
            batch += 1
        self.reached = folder.chunk(batch) >= host.goal
        if host.stays:
            self._stopping.wait()

    def _is_handled(self, number: int) -> bool:
        """As `twophase.spark.batch.batch.ForeachBatch`."""
        batch = SimulatedBatch(self._host, self._coordinator, self._folder, number)
        self._under_way = number
        try:
            self._handle(number, batch)
        except GateClosedError:
            return False
        except Exception as error:  # noqa: BLE001 raised by `wait`
            self._error = error
            return False
        finally:
            self._under_way = None
        return True


class SimulatedBatch:
    """See `twophase.engine.host.MicroBatch`.

    Args:
        host: where it runs.
        coordinator: recovered.
        folder: Spark's folder of the lineage.
        number: n.
    """

    def __init__(
        self,
        host: SimulatedHost,
        coordinator: CheckpointCoordinator,
        folder: QueryFolder,
        number: int,
    ) -> None:
        self._host = host
        self._coordinator = coordinator
        self._folder = folder
        self._number = number
        self._comes_late = host.process in host.world.oracle.saving

    def begin(self, decided: Decision | None) -> None:
        """See `MicroBatch.begin`."""
        self._host.world.oracle.holds(
            not self._comes_late,
            f"{self._host.process.name} was stopped with a savepoint, and micro-batch "
            f"{self._number} begins",
        )

    def pre_commit(self, pending: PendingCheckpoint) -> None:
        """See `MicroBatch.pre_commit`."""
        host, chunk = self._host, self._folder.chunk(self._number)
        try:
            host.executors.pre_commit(
                pending, self._coordinator.context.sinks, chunk, host.tell, self._before_one
            )
            self._folder.sync(pending.checkpoint)
        except (OSError, pymysql.Error) as error:
            raise DeclinedError(f"Checkpoint {pending.checkpoint} failed: {error!r}.") from error

    def execute(self) -> None:
        """See `MicroBatch.execute`."""
        folder, oracle = self._folder, self._host.world.oracle
        known = folder.lineage.id, self._number
        mine = [one for one in oracle.decided.values() if (one.lineage, one.checkpoint) == known]
        oracle.holds(bool(mine), f"micro-batch {self._number} is executed, and is not decided")
        self._host.world.scheduler.step("spark executes", _SPARK_S)

    def _before_one(self, pending: PendingCheckpoint) -> None:
        """A sink that commits ahead relies on the offsets."""
        mode = self._coordinator.context.options.mode
        if mode is CheckpointMode.AT_LEAST_ONCE and len(pending.missing()) > 1:
            self._folder.sync(pending.checkpoint)


def _of_savepoint(restore: Restore | None) -> tuple[int, int, tuple[int, ...]] | None:
    if restore is None:
        return None
    pending = tuple(found.checkpoint for found in restore.adopting)
    return restore.checkpoint.checkpoint, restore.lineage.first_checkpoint, pending
