"""One driver process: what `twophase.spark.job.job` does, without Spark. The numbers are
those of its docstring.

Real: the coordinator, the store, the log, recovery, the restore, the sinks, the restart strategy.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed
from twophase.contract.sink import CommitRequest, SinkContext, SinkHistory
from twophase.coordinator import release
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.fan_out import SideBySide, sequentially
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.recovery_steps import Restore
from twophase.engine.restart import restart_policy
from twophase.errors import InDoubtError, StopJobError, TwoPhaseError
from twophase.events import Observer, Observers
from twophase.ids import Attempt
from twophase.operations.savepoint.abandoned_folders import delete_abandoned
from twophase.operations.savepoint.make import SavepointMaker
from twophase.operations.savepoint.restore import load_restore
from twophase.operations.savepoint.savepoint_restore import Plan
from twophase.options.job_options import JobOptions
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.sinks.mysql.sink import MySqlSink
from twophase.spark.job.lineage_start import LineageStart
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Lineage
from twophase.testing.plain_driver import run_batch
from verification.simulation.decisions import FORMAT_ID
from verification.simulation.query_folder import QueryFolder
from verification.simulation.rewinding import take_back
from verification.simulation.scheduler import Process, Scheduler
from verification.simulation.spark import SCHEMA, Executors, QueryLog
from verification.simulation.telling import Started
from verification.simulation.threads import Thread
from verification.simulation.verdict import judge
from verification.simulation.worlds import RELEASED, WITH_SAVEPOINTS

if TYPE_CHECKING:
    from verification.simulation.world import World

JOB = "orders"
_SPARK_S = 0.01


class SimulatedClock:
    """The coordinator's clock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic_s(self) -> float:
        return self._scheduler.now_s

    def unix_ms(self) -> int:
        return int(self._scheduler.now_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return self._scheduler.wait_until(event.is_set, self._scheduler.now_s + timeout_s)


class WatchedSink(MySqlSink):
    """The real sink; what it returns when it is open is reported to the oracle."""

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(**options)
        self._world = world

    def open(self, context: SinkContext) -> OpenWatchedSink:
        return OpenWatchedSink(self._world, super().open(context))


class OpenWatchedSink(OpenMySqlSink):
    """The same, open."""

    def __init__(self, world: World, opened: OpenMySqlSink) -> None:
        vars(self).update(vars(opened))
        self._world = world

    @property
    def hash(self) -> str:
        """What stands for the sink in an xid."""
        return self._owner.sink_hash

    def history(self) -> SinkHistory:
        found = super().history()
        self._world.oracle.asks(found.generation)
        return found

    def in_doubt(self) -> Sequence[Committable]:
        self._world.oracle.looks()
        return super().in_doubt()

    def fence(self, attempt: Attempt) -> None:
        changes = self._world.oracle.changes
        super().fence(attempt)
        if self._world.oracle.changes == changes:
            self._world.oracle.fenced(self.hash, (attempt.generation, attempt.counter))

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        missing = {*self._world.oracle.undone}
        outcomes = super().commit(requests)
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Committed | AlreadyCommitted):
                self._world.oracle.believes_committed(_xid(request.committable), missing)
        return outcomes

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """Every row can be distinguished from others here: the oracle knows them."""

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """As a sink without transactions does it: the rows go, then their proofs."""
        mine = (self._owner.job, self._owner.sink)
        take_back(self._world, self.hash, mine, keep, (attempt.generation, attempt.counter))


def job_options(
    world: World, folder: str, restore_path: str | None = None, sink_ahead: str = ""
) -> JobOptions:
    """The options of the job."""
    restore = {
        "restore.path": restore_path,
        "restore.sink_ahead": sink_ahead or world.sink_ahead,
    }
    given = {
        "checkpointLocation": folder,
        "checkpoint.tolerable_failures": world.options.tolerable_failures,
        "checkpoint.num_retained": world.options.num_retained,
        "checkpoint.max_concurrent": world.options.max_concurrent,
        "checkpoint.mode": world.mode(),
    }
    return JobOptions.parse(given | (restore if restore_path else {}), "job")


def watched_sinks(world: World) -> dict[str, WatchedSink]:
    """The sinks of the job."""
    options = {"load_rows": world.options.load_rows, "fence_timeout": 20}
    return {
        name: WatchedSink(world, url=f"mysql://app@{host}/shop", table=name, **options)
        for name, host in world.targets.items()
    }


class Driver:
    """A driver, from its start to its end.

    Args:
        world: where it lives.
        number: which one it is.
        folder: the job's folder.
        restore_path: the job's option `restore.path`.
        goal: how many chunks of the input it is to write.
        records: what the logs held when it was decided to start it so.

    Attributes:
        process: what can be killed.
        folder: the job's folder.
        records_at_start: as given.
        changes_at_start: how often targets had changed before.
        executors: its tasks.
        error: what ended it; None if it reached its goal, or was killed or stopped.
        reached: whether it reached its goal.
        refused: whether it is expected to fail at its start.
        stopping: whether it was asked to stop.
        gives_up: whether it ends by giving its checkpoints up, without being asked to stop.
        saves: where it makes a savepoint when it has been asked to stop; empty for nowhere.
        generation: what it has fenced the log with; None before.
    """

    def __init__(
        self,
        world: World,
        number: int,
        folder: str,
        restore_path: str | None,
        goal: int,
        records: Counter[str],
    ) -> None:
        self.process = Process(f"driver{number}")
        self.folder = folder
        self.records_at_start = records
        self.changes_at_start = world.oracle.changes
        world.oracle.folders[self.process] = folder
        self.executors = Executors(
            self.process, world.scheduler, world.options, world.source, world.faults
        )
        self.error: Exception | None = None
        self.reached = self.refused = False
        self.stopping = self.gives_up = False
        self.saves = ""
        self.generation: int | None = None
        self._world = world
        self._goal = goal
        self._options = job_options(world, folder, restore_path)
        self._declared = watched_sinks(world)
        self._sinks: dict[str, OpenWatchedSink] = {}
        self._coordinator: CheckpointCoordinator | None = None
        self._lineage_start: LineageStart | None = None
        self._tell: Observer

    def run(self) -> None:
        """Live."""
        try:
            self._live()
        except Exception as error:  # noqa: BLE001 whoever started it looks at it
            self.error = error
            if not self.refused:
                judge(self._world.oracle, self, error)
        finally:
            self.process.kill()

    @property
    def restores(self) -> bool:
        """Whether it has the option `restore.path`."""
        return self._options.restore_path is not None

    @property
    def restore_path(self) -> str:
        """That option; empty without it."""
        return self._options.restore_path or ""

    def stop(self) -> None:
        """Ask it to stop."""
        self.stopping = True
        if self._coordinator is not None:
            self._coordinator.context.stopping.set()

    # -- steps -------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Steps 2 to 7. A failure of the first start ends the process, as in the real job."""
        storage = LocalStorage(self._options.checkpoint_location)
        for name, sink in self._declared.items():
            options = self._world.options
            self._sinks[name] = sink.open(
                SinkContext(
                    JOB, name, SCHEMA, options.writers, max_concurrent=options.max_concurrent
                )
            )
        query = self._start_query(storage)
        policy = restart_policy(self._options)
        error = _error_of(lambda: self._run_query(query))
        while error is not None and not self.stopping:
            judge(self._world.oracle, self, error)
            delay_s = policy(self._world.scheduler.now_s) if _is_restartable(error) else None
            if delay_s is None:
                raise error
            self._world.scheduler.sleep(delay_s)
            error = _error_of(lambda: self._run_query(self._start_query(storage)))
        if self._world.options.world == RELEASED and (self.stopping or self.gives_up):
            self._release(error)
        if self.saves and not isinstance(error, StopJobError):
            clock = SimulatedClock(self._world.scheduler)
            maker = SavepointMaker(JOB, storage.root, clock)
            maker.make(self.saves, still_waiting=lambda: False)
        for opened in self._sinks.values():
            opened.close()

    def _release(self, error: Exception | None) -> None:
        """As `twophase.spark.job.retention`: what cannot be given up is kept."""
        coordinator = self._coordinator
        if coordinator is None or isinstance(error, StopJobError):
            return
        try:
            done = release.release_checkpoints(
                coordinator.context, coordinator.attempts, coordinator.closer
            )
        except Exception as found:  # noqa: BLE001 the job has ended; what it has is kept
            self._world.happens(f"not released: {type(found).__name__}")
        else:
            self._world.happens("released" if done else "kept")

    def _start_query(self, storage: LocalStorage) -> QueryLog | QueryFolder | None:
        """Steps 3 to 6; nothing to run if it is stopping."""
        self._world.oracle.aborted.discard(self.process)
        restore = self._load_restore(storage)
        started = Started(
            JOB,
            self.folder,
            tuple(self._sinks),
            restores=restore is not None,
            savepoint=_of_savepoint(restore) if self._lineage_start is not None else None,
        )
        self._tell = self._world.telling.begin(self.process, started)
        context = JobContext(
            JOB,
            storage,
            self._sinks,
            self._options,
            Observers(self._tell),
            SimulatedClock(self._world.scheduler),
            fan_out=SideBySide(self._thread) if self._world.options.side_by_side else sequentially,
        )
        coordinator = self._coordinator = CheckpointCoordinator(
            context,
            snapshot=lambda _, offsets: {"sources": list(offsets.end)},
            spawn=self._thread,
            on_failure=context.stopping.set,
        )
        self._recover(coordinator, restore)
        if self.stopping:
            return None
        if self._lineage_start is not None:
            self._lineage_start.begin(coordinator)
            return self._prepare_folder(coordinator, storage)
        if restore is not None:
            coordinator.begin_lineage(restore.lineage)
        elif coordinator.context.log.history.lineage is None:
            coordinator.begin_lineage(Lineage(self._world.new_id()))
        query = self._world.query_log(self.folder, coordinator.lineage)
        newest = coordinator.newest()
        try:
            query.check(newest.checkpoint if newest else coordinator.lineage.first_checkpoint - 1)
        except StopJobError:
            coordinator.context.log.check_fence()
            raise
        return query

    def _prepare_folder(
        self, coordinator: CheckpointCoordinator, storage: LocalStorage
    ) -> QueryFolder:
        """As `twophase.spark.job.query_run` does."""
        root = storage.root / "spark"
        lineage = coordinator.lineage
        folder = QueryFolder(self._world.disk, root / lineage.id, lineage)
        try:
            folder.prepare(coordinator.newest())
        except TwoPhaseError:
            coordinator.context.log.check_fence()
            raise
        history = coordinator.context.log.history
        delete_abandoned(root, history, self._options.num_retained)
        return folder

    def _thread(self, run: Callable[[], None]) -> Thread:
        return Thread(self._world.scheduler, self.process, run)

    def _recover(self, coordinator: CheckpointCoordinator, restore: Restore | None) -> None:
        oracle, sinks = self._world.oracle, [sink.hash for sink in self._sinks.values()]
        missing, changes = {*oracle.undone}, oracle.changes
        try:
            coordinator.recover(self.generation, restore)
        except InDoubtError:
            self.generation = None
            raise
        except Exception:
            self.generation = coordinator.generation or self.generation
            raise
        self.generation = coordinator.generation
        if not coordinator.context.stopping.is_set():
            oracle.recovered(
                sinks if oracle.changes == changes else [], coordinator.generation, missing
            )

    def _run_query(self, query: QueryLog | QueryFolder | None) -> None:
        """The query, and the commits behind it."""
        coordinator = self._coordinator
        if query is None or coordinator is None:
            return
        try:
            self._run_batches(query, coordinator.context.stopping)
        except Exception as error:
            coordinator.close()
            raise coordinator.failure or error from error
        coordinator.close(retry=True)
        if coordinator.failure is not None:
            raise coordinator.failure

    def _run_batches(self, query: QueryLog | QueryFolder, stopping: threading.Event) -> None:
        """Spark: plan, run, note as finished; the newest micro-batch again if
        it was not finished.
        """
        scheduler = self._world.scheduler
        batch = query.planned if query.planned > query.finished else query.planned + 1
        while query.chunk(batch) < self._goal and not stopping.is_set():
            scheduler.step("spark plans", _SPARK_S)
            query.planned = max(query.planned, batch)
            self._run_batch(batch, query.chunk(batch), query.offsets(batch))
            scheduler.step("spark finishes", _SPARK_S)
            query.finished = max(query.finished, batch)
            batch += 1
        self.reached = query.chunk(batch) >= self._goal

    def _run_batch(self, batch: int, chunk: int, offsets: FrozenOffsets) -> None:
        assert self._coordinator is not None
        run_batch(
            self._coordinator,
            batch,
            offsets,
            lambda pending: self.executors.pre_commit(pending, self._sinks, chunk, self._tell),
        )

    def _load_restore(self, storage: LocalStorage) -> Restore | None:
        states, options = SourceStates(same=not self._world.reads_other_sources), self._options
        if self._world.options.world in WITH_SAVEPOINTS:
            declared = {name: SimpleNamespace(sink=one) for name, one in self._declared.items()}
            described = SimpleNamespace(options=options, functions={}, sinks=declared)
            parts: Any = SimpleNamespace(
                name=JOB, storage=storage, states=states, description=described, sinks=self._sinks
            )
            self._lineage_start = LineageStart(parts, Plan(stateful=False, keeps_state=False))
            return self._lineage_start.restore
        if options.restore_path is None:
            return None
        return load_restore(JOB, options.restore_path, storage, states, options)


class SourceStates(OperatorStates):
    """Stands for the operator states of the job's sources.

    Args:
        same: whether the plan reads the sources of a savepoint, in their order.
    """

    def __init__(self, *, same: bool) -> None:
        super().__init__([], {})
        self._same = same

    def reads_same_sources(self, checkpoint: CompletedCheckpoint) -> bool:
        return self._same

    def start_offsets(
        self, checkpoint: CompletedCheckpoint, options: JobOptions
    ) -> tuple[str | None, ...]:
        return checkpoint.offsets.end


def _of_savepoint(restore: Restore | None) -> tuple[int, int, tuple[int, ...]] | None:
    if restore is None:
        return None
    pending = tuple(found.checkpoint for found in restore.adopting)
    return restore.checkpoint.checkpoint, restore.lineage.first_checkpoint, pending


def _error_of(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 handed to the restart strategy
        return error
    return None


def _is_restartable(error: Exception) -> bool:
    return error.restartable if isinstance(error, TwoPhaseError) else True


def _xid(committable: Committable) -> str:
    return f"'{committable.handle['gtrid']}','{committable.handle['bqual']}',{FORMAT_ID}"
