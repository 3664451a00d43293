"""One driver process: the product's engine, over a simulated host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twophase.coordinator.commit.fan_out import sequentially
from twophase.engine.engine import Engine
from twophase.events import Event, Observers
from twophase.operations.savepoint.make import JobSavepoints
from verification.simulation.ending import DriverEnding
from verification.simulation.host import SimulatedHost
from verification.simulation.job import JOB, job_options, watched_sinks
from verification.simulation.scheduler import Process, Task
from verification.simulation.spark import Executors

if TYPE_CHECKING:
    from verification.simulation.world import World


class Driver:
    """A driver, from its start to its end.

    Args:
        world: where it lives.
        number: which one it is.
        folder: the job's folder.
        restore_path: the job's option `restore.path`.
        goal: how many chunks of the input it is to write.
        records: what the logs held when it was decided to start it so.
        judge: hears of each failure, of a run of its query and of itself.

    Attributes:
        process: what can be killed.
        folder: the job's folder.
        executors: its tasks.
        error: what ended it; None if it reached its goal, or was killed or stopped.
        stopping: whether it was asked to stop.
    """

    def __init__(
        self,
        world: World,
        number: int,
        folder: str,
        restore_path: str | None,
        goal: int,
        records: Counter[str],
        judge: Callable[[DriverEnding], None],
    ) -> None:
        self.process = Process(f"driver{number}")
        self.folder = folder
        self.executors = Executors(
            self.process, world.scheduler, world.options, world.source, world.faults
        )
        self.error: Exception | None = None
        self.stopping = False
        self._saves = ""
        self._restore_path = restore_path or ""
        self._world = world
        self._records = records
        self._changes = world.oracle.changes
        self._judge = judge
        self._options = job_options(world, folder, restore_path, mode=world.mode())
        self._sinks = watched_sinks(world)
        self._host = SimulatedHost(
            world, self.process, self._options, self._sinks, self.executors, goal, self._failed
        )
        self._engine: _Engine | None = None
        self._saving: Task | None = None
        self._judged: Exception | None = None
        world.oracle.folders[self.process] = folder

    @property
    def reached(self) -> bool:
        """Whether it has reached its goal."""
        return self._host.query is not None and self._host.query.reached

    def run(self) -> None:
        """Live."""
        try:
            self._live()
        except Exception as error:  # noqa: BLE001 whoever started it looks at it
            self._failed(error)
            self.error = error
        finally:
            self.process.kill()

    def stays(self) -> None:
        """Let it go on when it has reached its goal, until it is stopped."""
        self._host.stays = True

    def stop(self) -> None:
        """Ask it to stop."""
        self.stopping = True
        self._spawn("stop", self._stop)

    def stop_with_savepoint(self, path: str) -> None:
        """Ask it to stop, and to make a savepoint."""
        self.stopping = True
        self._saves = path
        self._saving = self._spawn("savepoint", lambda: self._stop_with_savepoint(path))

    # -- steps -------------------------------------------------------------------------------------

    def _live(self) -> None:
        world, host = self._world, self._host
        engine = self._engine = _Engine(
            host,
            JOB,
            self._sinks,
            self._options,
            Observers(self._hear),
            fan_out=None if world.options.side_by_side else sequentially,
        )
        try:
            engine.start()
            engine.await_termination()
        finally:
            self._check_ended()
        if (saving := self._saving) is not None:
            world.scheduler.wait_until(lambda: saving.done, None)
            if isinstance(saving.error, Exception):
                raise saving.error

    def _stop(self) -> None:
        self._ready().stop()

    def _stop_with_savepoint(self, path: str) -> None:
        JobSavepoints(self._ready()).stop(path)

    def _ready(self) -> Engine:
        self._world.scheduler.wait_until(lambda: self._engine is not None, None)
        assert self._engine is not None
        return self._engine

    def _spawn(self, name: str, work: Callable[[], object]) -> Task:
        return self._world.scheduler.spawn(self.process, f"{self.process.name}.{name}", work)

    def _hear(self, event: Event) -> None:
        self._host.tell(event)

    def _failed(self, error: Exception) -> None:
        """Each failure is judged once, when it is met."""
        if error is self._judged:
            return
        self._judged = error
        self._judge(
            DriverEnding(
                self.process,
                self.folder,
                error,
                self._restore_path,
                self._saves,
                self._records,
                self._changes,
            )
        )

    def _check_ended(self) -> None:
        """Nothing of a job that has ended goes on."""
        if self.process.dead:
            return
        query = self._host.query
        left = [thread.name for thread in self._host.threads if thread.is_alive]
        left = [name for name in left if not name.endswith(".watch")]
        left += ["its query"] if query is not None and query.is_active else []
        self._world.oracle.holds(not left, f"{self.process.name} has ended, and {left} go on")


class _Engine(Engine):
    """The product's; the oracle hears of its stops.

    Args:
        host: where it is.
        arguments, options: as the product's.
    """

    def __init__(self, host: SimulatedHost, *arguments: Any, **options: Any) -> None:
        super().__init__(host, *arguments, **options)
        self._process, self._oracle = host.process, host.world.oracle

    def stop(self, timeout_s: float | None = None) -> bool:
        self._oracle.stopped.add(self._process)
        return super().stop(timeout_s)

    @contextmanager
    def stopped_after_batch(self) -> Iterator[None]:
        self._oracle.stopped.add(self._process)
        self._oracle.saving.add(self._process)
        with super().stopped_after_batch():
            yield
