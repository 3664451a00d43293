"""The commands of `twophase savepoint`, and the start of another job with a savepoint.

Real: the making, the finishing, the disposal, the driver of a fork. Simulated: Spark's folder
(`query_folder`), and the host of the fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twophase.coordinator.commit.context import JobContext
from twophase.engine.driver import Driver
from twophase.engine.host import Beginning, Plan
from twophase.events import Observers
from twophase.operations.savepoint.finish import finish_savepoint
from twophase.operations.savepoint.format import dispose
from twophase.operations.savepoint.make import SavepointMaker
from twophase.operations.savepoint.savepoint_restore import verified
from twophase.options.job_options import JobOptions
from twophase.spark.job.lineage_start import LineageStart
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage
from verification.simulation.ending import FORK
from verification.simulation.host import SimulatedHost
from verification.simulation.job import JOB, SourceStates, watched_sinks
from verification.simulation.telling import Started

if TYPE_CHECKING:
    from verification.simulation.running import Running

MAKE, FINISH, DISPOSE = "create", "finish", "dispose"


def _make(running: Running) -> None:
    command = running.command
    maker = SavepointMaker(JOB, ReadOnlyStorage(command.folder).root, running.clock)
    only = command.committed_only
    maker.make(command.path, committed_only=only, still_waiting=lambda: False)


def _finish(running: Running) -> None:
    command, sinks = running.command, running.open()
    started = Started(JOB, command.folder, tuple(sinks), restores=False)
    observers = Observers(running.world.telling.begin(running.process, started))
    context = running.context(sinks, observers)
    finish_savepoint(context, verified(JOB, command.path), LocalStorage(command.path))
    for sink in sinks.values():
        sink.close()


def _dispose(running: Running) -> None:
    path = running.command.path
    dispose(LocalStorage(path), path)


def _fork(running: Running) -> None:
    """The start of another job, which writes no rows: they would lie beside the first job's."""
    sinks = running.open(writes=True)
    context = running.context(sinks)
    Driver(ForkHost(running, context.options), context).take_over()
    for opened in sinks.values():
        opened.close()


class ForkHost(SimulatedHost):
    """The host of a job that begins with another job's savepoint. It runs no query.

    Args:
        running: its start.
        options: of the job.
    """

    def __init__(self, running: Running, options: JobOptions) -> None:
        world, process = running.world, running.process
        where = (world, process, options, watched_sinks(world), running.executors)
        super().__init__(*where, goal=0, judge=lambda error: None)

    def plan(self) -> Plan:
        """See `Host.plan`. It reads the same sources."""
        return Plan(stateful=False, keeps_state=False)

    def beginning(self, context: JobContext, plan: Plan) -> Beginning:
        """See `Host.beginning`. The oracle hears nothing of a fork."""
        storage, states = LocalStorage(context.options.checkpoint_location), SourceStates(same=True)
        return LineageStart(context, storage, states, plan, watched_sinks(self.world))


SAVEPOINTS: dict[str, Callable[[Running], None]] = {
    MAKE: _make,
    FINISH: _finish,
    DISPOSE: _dispose,
    FORK: _fork,
}
