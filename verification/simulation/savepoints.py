"""Operators who make savepoints, finish them, move them, and restore them.

Each plan of a run is one savepoint, from its making to what is done with it:

    beside     `savepoint create`, or `job.savepoint`, beside the drivers
    stopped    a driver that is stopped makes one
    dead       `savepoint create` of the folder of drivers that were killed
    here       restored in the job's folder, where an old driver may live
    moved      carried elsewhere and restored in an empty folder, the job's own being gone or left
    kept       not restored: the job just goes on

In between the job may go on, which makes the savepoint too old, and it may be finished. A restore
that is refused leaves everything as it was, and the job goes on without it; or it rewinds. Another
job may begin with the savepoint beside this one.

Real: the making, the finishing, the disposal, the restore, the start of a fork. Simulated: the
copying, Spark's folder (`query_folder`), and how a sink takes rows back (`rewinding`). A command
may be killed or stand still, and be run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from twophase.contract.sink import SinkContext
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine.host import Plan as Begins
from twophase.events import Observers
from twophase.operations.savepoint.finish import finish_savepoint
from twophase.operations.savepoint.format import dispose
from twophase.operations.savepoint.make import SavepointMaker
from twophase.operations.savepoint.savepoint_restore import verified
from twophase.spark.job.lineage_start import LineageStart
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage
from verification.simulation.job import (
    JOB,
    SourceStates,
    job_options,
    sink_context,
    watched_sinks,
)
from verification.simulation.options import Mishap
from verification.simulation.saved import MANIFEST, Saved, newest_of
from verification.simulation.scheduler import Process
from verification.simulation.spark import Executors
from verification.simulation.telling import Started
from verification.simulation.threads import SimulatedClock
from verification.simulation.verdict import judge_savepoint

if TYPE_CHECKING:
    from verification.simulation.world import World

MAKE, FINISH, DISPOSE, FORK = "create", "finish", "dispose", "fork"
BESIDE, STOPPED, DEAD = "beside", "stopped", "dead"
HERE, MOVED, KEPT = "here", "moved", "kept"
_POINTS = {
    MAKE: ("S01", "S02", "S03", "S04"),
    FINISH: ("C11", "C12", "C15", "C19", "C20", "S08"),
    DISPOSE: ("S09", "S10"),
    FORK: ("C11", "C12", "C15", "C18", "C22", "S05", "S06", "S07"),
}
_PAUSES_S = (0.0, 0.0, 0.3, 3.0)
_MISHAPS, _TRIES = 0.4, 8


@dataclass(frozen=True)
class Plan:
    """One savepoint.

    Attributes:
        after: it is made when so many chunks are decided.
        made: beside, stopped or dead.
        committed_only: it is asked for by the running job.
        goes_on: so many more chunks are decided before it is restored.
        finishes: whether it is finished first.
        used: here, moved or kept.
        other_sources: whether the restored plan reads other sources.
        rewinds: whether sinks that are ahead are to take rows back.
        forks: whether another job begins with it first.
    """

    after: int
    made: str
    committed_only: bool
    goes_on: int
    finishes: bool
    used: str
    other_sources: bool
    rewinds: bool
    forks: bool

    @classmethod
    def of(cls, random: Random, after: int) -> Plan:
        made = random.choice((BESIDE, STOPPED, DEAD, DEAD))
        rewinds = random.random() < 0.4
        return cls(
            after,
            made,
            made == BESIDE and random.random() < 0.5,
            random.choice((0, 1, 1) if rewinds else (0, 0, 0, 1)),
            random.random() < 0.4,
            random.choice((HERE, HERE, MOVED, MOVED, KEPT)),
            random.random() < 0.2,
            rewinds,
            random.random() < 0.4,
        )


def plans_of(seed: int, checkpoints: int) -> list[Plan]:
    """What the operators of a run do, in this order."""
    random = Random(f"savepoints {seed}")
    count = random.choice((1, 1, 2))
    moments = sorted(random.randint(1, checkpoints - 2) for _ in range(count))
    return [Plan.of(random, moment) for moment in moments]


class Tool:
    """One run of `twophase savepoint`, or of another job that begins with a savepoint.

    Args:
        world: where.
        name: of its process.
        verb: create, finish, dispose or fork.
        folder: the job's.
        path: the savepoint's.
        committed_only: it is asked for by the running job.

    Attributes:
        process: what can be killed.
        executors: it has no tasks.
        error: what ended it.
        done: whether it has come to its end.
        folder, verb: as given.
        alone: whether no driver lived when it began.
    """

    def __init__(
        self, world: World, name: str, verb: str, folder: str, path: str, *, committed_only: bool
    ) -> None:
        self.process = Process(name)
        self.executors = Executors(
            self.process, world.scheduler, world.options, world.source, world.faults
        )
        self.error: Exception | None = None
        self.done = False
        self.folder = folder
        self.verb = verb
        self._world = world
        self._path = path
        self._committed_only = committed_only
        self._clock = SimulatedClock(world.scheduler)
        lives = [other for other, root in world.oracle.folders.items() if root == folder]
        self.alone = all(other.dead for other in lives)
        world.oracle.folders[self.process] = folder

    def run(self) -> None:
        """Live."""
        try:
            match self.verb:
                case "create":
                    root = ReadOnlyStorage(self.folder).root
                    maker = SavepointMaker(JOB, root, self._clock)
                    only = self._committed_only
                    maker.make(self._path, committed_only=only, still_waiting=lambda: False)
                case "finish":
                    self._finish()
                case "fork":
                    self._fork()
                case _:
                    dispose(LocalStorage(self._path), self._path)
            self.done = True
        except Exception as error:  # noqa: BLE001 the operator looks at it
            self.error = error
            judge_savepoint(self._world.oracle, self, error)
        finally:
            self.process.kill()

    def _finish(self) -> None:
        world = self._world
        sinks = {
            name: sink.open(SinkContext(JOB, name, None, parallelism=0))
            for name, sink in watched_sinks(world).items()
        }
        options = job_options(world, self.folder)
        started = Started(JOB, self.folder, tuple(sinks), restores=False)
        observers = Observers(world.telling.begin(self.process, started))
        context = JobContext(JOB, LocalStorage(self.folder), sinks, options, observers, self._clock)
        finish_savepoint(context, verified(JOB, self._path), LocalStorage(self._path))
        for sink in sinks.values():
            sink.close()

    def _fork(self) -> None:
        """The start of another job, which writes no rows: they would lie beside the first job's."""
        world, declared = self._world, watched_sinks(self._world)
        name = f"{JOB}-{self.folder.rpartition('/')[2]}"
        sinks = {key: sink.open(sink_context(world, key, name)) for key, sink in declared.items()}
        given, storage = (
            job_options(world, self.folder, self._path, FORK),
            LocalStorage(self.folder),
        )
        context = JobContext(name, storage, sinks, given, Observers(), self._clock)
        plan = Begins(stateful=False, keeps_state=False)
        start = LineageStart(context, storage, SourceStates(same=True), plan, declared)
        coordinator = CheckpointCoordinator(context, snapshot=lambda _, __: {})
        try:
            coordinator.recover(None, start.restore)
        finally:
            start.close()
        start.begin(coordinator)
        for opened in sinks.values():
            opened.close()


class Toolbox:
    """Runs the commands of one run.

    Args:
        world: where.

    Attributes:
        tools: those that were run.
    """

    def __init__(self, world: World) -> None:
        self.tools: list[Tool] = []
        self._world = world
        self._made = 0

    def path(self) -> str:
        """Where the next savepoint is to be."""
        self._made += 1
        return f"/data/saved{self._made}"

    def saved(self, path: str) -> Saved | None:
        """What is at a path; None if it is no savepoint, or none any more: one whose manifest could
        not be synced is deleted.
        """
        try:
            self._world.disk.find(f"{path}/{MANIFEST}")
        except FileNotFoundError:
            return None
        return self._world.oracle.saved.by_path.get(path)

    def run(self, verb: str, folder: str, path: str, *, committed_only: bool = False) -> Tool:
        """Run a command to its end, whoever lives."""
        world, random = self._world, self._world.scheduler.random
        name = f"savepoint{len(self.tools)}"
        tool = Tool(world, name, verb, folder, path, committed_only=committed_only)
        if not world.faults.calm and random.random() < _MISHAPS:
            count = random.choice((1, 1, 3))
            pause_s = random.choice(_PAUSES_S)
            world.faults.arm(tool.process, Mishap(random.choice(_POINTS[verb]), count, pause_s))
        self.tools.append(tool)
        world.happens(f"savepoint {verb}")
        world.scheduler.spawn(tool.process, name, tool.run)
        world.scheduler.wait_until(lambda: tool.process.dead, None)
        return tool

    def make(self, folder: str, *, committed_only: bool = False) -> str:
        """Make a savepoint, again if the command dies or fails; return its path, or nothing."""
        for _ in range(_TRIES):
            path = self.path()
            tool = self.run(MAKE, folder, path, committed_only=committed_only)
            saved = self.saved(path)
            if saved is not None:
                if tool.alone and not committed_only:
                    self.is_newest(path)
                return path
            self._world.oracle.holds(
                not tool.done, f"I8: {path} was said to be made, and it is not there"
            )
            self._dispose(folder, path)
        return ""

    def is_newest(self, path: str) -> None:
        """One of a job that has stopped is of its newest decided checkpoint."""
        saved, oracle = self.saved(path), self._world.oracle
        newest = newest_of(oracle, saved.root) if saved else None
        if saved and newest:
            oracle.holds(
                newest.chunk == saved.chunk,
                f"I2: {path} is of chunk {saved.chunk}, the newest decided is {newest.chunk}",
            )

    def move(self, path: str) -> str:
        """Carry a savepoint elsewhere; return where it is then."""
        world, target = self._world, f"{path}-moved"
        world.disk.copy(path, target)
        world.oracle.saved.by_path[target] = world.oracle.saved.by_path[path]
        self.remove(path)
        return target

    def remove(self, path: str) -> None:
        """Delete a folder, at once."""
        parent, name = self._world.disk.folder_of(path)
        parent.put(name, None)
        self._world.disk.sync(parent)

    def finish(self, folder: str, path: str) -> None:
        """Finish a savepoint; again if the command dies."""
        for _ in range(_TRIES):
            tool = self.run(FINISH, folder, path)
            if tool.done or tool.error is not None:
                return

    def fork(self, path: str) -> None:
        """Let another job begin with a savepoint; again if it dies."""
        folder = path.replace("saved", "fork")
        self._world.oracle.saved.forks.add(folder)
        for _ in range(_TRIES):
            tool = self.run(FORK, folder, path)
            if tool.done:
                return self._world.happens("forked")
        return None

    def _dispose(self, folder: str, path: str) -> None:
        """Clear away what one that was cut short has left."""
        try:
            left = self._world.disk.find(path)
        except FileNotFoundError:
            return
        names = list(getattr(left, "entries", ()))
        assert MANIFEST not in names
        if "_begun" in names:
            self.run(DISPOSE, folder, path)
