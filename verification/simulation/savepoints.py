"""The commands of `twophase savepoint`, and the start of another job with a savepoint.

Real: the making, the finishing, the disposal, the start of a fork. Simulated: Spark's folder
(`query_folder`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine.host import Plan
from twophase.events import Observers
from twophase.operations.savepoint.finish import finish_savepoint
from twophase.operations.savepoint.format import dispose
from twophase.operations.savepoint.make import SavepointMaker
from twophase.operations.savepoint.savepoint_restore import verified
from twophase.spark.job.lineage_start import LineageStart
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage
from verification.simulation.ending import FORK
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
    sinks, storage = running.open(writes=True), LocalStorage(running.command.folder)
    context, plan = running.context(sinks), Plan(stateful=False, keeps_state=False)
    declared = watched_sinks(running.world)
    start = LineageStart(context, storage, SourceStates(same=True), plan, declared)
    coordinator = CheckpointCoordinator(context, snapshot=lambda _, __: {})
    try:
        coordinator.recover(None, start.restore)
    finally:
        start.close()
    start.begin(coordinator)
    for opened in sinks.values():
        opened.close()


SAVEPOINTS: dict[str, Callable[[Running], None]] = {
    MAKE: _make,
    FINISH: _finish,
    DISPOSE: _dispose,
    FORK: _fork,
}
