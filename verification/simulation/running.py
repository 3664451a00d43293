"""One run of a command: a process that may be killed or stand still."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twophase.contract.sink import OpenSink, SinkContext
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.fan_out import sequentially
from twophase.engine.engine import open_side_by_side
from twophase.events import Observers
from twophase.state.files.storage import LocalStorage
from verification.simulation.ending import ACCEPT, FORK, Command, CommandEnding
from verification.simulation.job import JOB, job_in, job_options, sink_context, watched_sinks
from verification.simulation.scheduler import Process
from verification.simulation.spark import Executors
from verification.simulation.threads import SimulatedClock

if TYPE_CHECKING:
    from verification.simulation.world import World


class Running:
    """One run of a command.

    Args:
        world: where.
        name: of its process.
        command: the command.
        act: what it does.
        judge: hears of its failure.

    Attributes:
        process: what can be killed.
        executors: its tasks.
        error: what ended it.
        done: whether it has come to its end.
        alone: whether no driver lived when it began.
        world, command: as given.
    """

    def __init__(
        self,
        world: World,
        name: str,
        command: Command,
        act: Callable[[Running], None],
        judge: Callable[[CommandEnding], None],
    ) -> None:
        self.process = Process(name)
        self.world = world
        self.command = command
        self.executors = Executors(
            self.process, world.scheduler, world.options, world.source, world.faults
        )
        self.error: Exception | None = None
        self.done = False
        self.clock = SimulatedClock(world.scheduler)
        self._act = act
        self._judge = judge
        folders = world.oracle.folders
        self.alone = all(one.dead for one, root in folders.items() if root == command.folder)
        folders[self.process] = command.folder

    def run(self) -> None:
        """Live."""
        try:
            self._act(self)
            self.done = True
        except Exception as error:  # noqa: BLE001 the operator looks at it
            self.error = error
            self._judge(self._ending(error))
        finally:
            self.process.kill()

    def _ending(self, error: Exception) -> CommandEnding:
        command = self.command
        return CommandEnding(self.process, command.folder, error, command, alone=self.alone)

    def open(self, *, writes: bool = False) -> Mapping[str, OpenSink]:
        """Open the job's sinks.

        Args:
            writes: whether rows are to be written.
        """
        world, job = self.world, job_in(self.world, self.command.folder)

        def describe(sink: str) -> SinkContext:
            if writes:
                return sink_context(world, sink, job)
            return SinkContext(job, sink, None, parallelism=0)

        return open_side_by_side(job, watched_sinks(world), describe, sequentially, Observers())

    def context(
        self, sinks: Mapping[str, OpenSink], observers: Observers | None = None
    ) -> JobContext:
        """The job that the command works with; `accept-loss` may name a savepoint, a fork does."""
        world, command = self.world, self.command
        job, path = job_in(world, command.folder), command.path
        restores = path if command.verb in (ACCEPT, FORK) else None
        policy = command.sink_ahead if job == JOB else FORK
        options = job_options(world, command.folder, restores, policy)
        storage = LocalStorage(command.folder)
        return JobContext(job, storage, sinks, options, observers or Observers(), self.clock)
