"""How the operators of `savepoints` work through their plans, beside who starts drivers.

In the calm the job has to be stopped, saved, moved and restored once more, and be exact.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twophase.errors import ConfigError, RestoreRefusedError
from verification.simulation.decisions import Decision
from verification.simulation.disk import Folder
from verification.simulation.savepoints import BESIDE, HERE, KEPT, STOPPED, Plan, Toolbox, plans_of
from verification.simulation.verdict import check_end

if TYPE_CHECKING:
    from verification.simulation.driver import Driver
    from verification.simulation.supervisor import Supervisor
    from verification.simulation.world import World

_REFUSED = (RestoreRefusedError, ConfigError)


class Saving:
    """Works through the plans of a run.

    Args:
        world: where.
        supervisor: who starts drivers.
    """

    def __init__(self, world: World, supervisor: Supervisor) -> None:
        self.toolbox = Toolbox(world)
        self._world = world
        self._supervisor = supervisor
        self._left = ""
        self._is_too_old = False
        self._moves = 0

    def work(self) -> None:
        """The storm, with the plans in it; then the calm."""
        supervisor, options = self._supervisor, self._world.options
        for plan in plans_of(options.seed, options.checkpoints):
            supervisor.storm(partial(self._has, plan.after))
            self._carry_out(plan)
        supervisor.storm(lambda: self._has(options.checkpoints - 1))
        self._world.faults.calm = True
        supervisor.wait_for_the_end()
        self._world.scheduler.wait_until(
            lambda: all(server.up for server in self._world.servers), None
        )
        if supervisor.restore_path not in self._world.oracle.restored:
            self.give_up()
        self._end()

    def give_up(self) -> None:
        """A restore was refused: the job goes on where it was."""
        if self._supervisor.restore_path is None:
            return
        self._world.happens("not restored")
        self._world.sink_ahead = "refuse"
        self._supervisor.restore_path = None
        self._supervisor.folder = self._left

    def refused(self, driver: Driver) -> None:
        """A driver that was to restore has ended with a refusal."""
        if not isinstance(driver.error, _REFUSED):
            return  # fenced: it is tried again
        if self._is_too_old:
            self._world.happens("refused: too old")
            self._world.oracle.holds(
                not self._world.oracle.fence_of(driver.process),
                f"H28: {driver.process.name} has taken the job over, and is refused then: "
                f"{driver.error}",
            )
        self.give_up()

    # -- a plan ------------------------------------------------------------------------------------

    def _carry_out(self, plan: Plan) -> None:
        if not (path := self._make(plan)):
            return
        self._world.happens(f"saved: {plan.made}")
        chunks = len(self._chunks())
        self._supervisor.storm(lambda: self._has(chunks + plan.goes_on))
        if plan.finishes:
            self.toolbox.finish(self._supervisor.folder, path)
        if plan.forks:
            self.toolbox.fork(path)
        if plan.used != KEPT:
            self._restore(plan, path)

    def _make(self, plan: Plan) -> str:
        folder, living = self._supervisor.folder, self._supervisor.living()
        if plan.made != STOPPED:
            if plan.made != BESIDE:
                self._supervisor.end_drivers()
            return self.toolbox.make(folder, committed_only=plan.committed_only)
        if not living or living[0].stopping:
            return ""
        path = self.toolbox.path()
        living[0].stop_with_savepoint(path)
        self._world.scheduler.wait_until(lambda: living[0].process.dead, None)
        if self.toolbox.saved(path) is None:
            return ""
        if len(living) == 1:
            self.toolbox.is_newest(path)
        return path

    def _restore(self, plan: Plan, path: str) -> None:
        supervisor, world = self._supervisor, self._world
        self._left = supervisor.folder
        if plan.used == HERE:
            if ends := world.scheduler.random.random() < 0.5:
                supervisor.end_drivers()
            else:
                supervisor.rival()
            self._is_too_old = ends and self._is_behind(path)
        else:
            supervisor.end_drivers()
            self._is_too_old = self._is_shown(path)
            path = self._move(path, keeps=self._is_behind(path))
        world.reads_other_sources = plan.other_sources
        self._is_too_old = self._is_too_old and not plan.rewinds
        if plan.rewinds:
            world.sink_ahead = "rewind"
            world.oracle.saved.rewinders.add(supervisor.folder)
        supervisor.restore(path)
        supervisor.storm(lambda: supervisor.restore_path is None or path in world.oracle.restored)
        if supervisor.restore_path is None:
            return
        if plan.rewinds:
            world.happens("restored with a rewind")
            world.sink_ahead = "refuse"
        world.happens(f"restored: {plan.used}{' by other sources' if plan.other_sources else ''}")
        if world.scheduler.random.random() < 0.5:  # the option may stay set
            supervisor.restore_path = None

    def _move(self, path: str, *, keeps: bool) -> str:
        """Carry a savepoint to where an empty folder waits."""
        supervisor = self._supervisor
        self._moves += 1
        folder = f"/data/restored{self._moves}"
        path = self.toolbox.move(path)
        self._world.oracle.saved.moved_to[folder] = path
        if not keeps and self._world.scheduler.random.random() < 0.5:
            self.toolbox.remove(supervisor.folder)
            self._world.happens("the job's folder is gone")
        supervisor.folder = folder
        return path

    # -- the end -----------------------------------------------------------------------------------

    def _end(self) -> None:
        """Nobody is in the way: the job goes on in its folder, then from a savepoint elsewhere."""
        supervisor, world, goal = self._supervisor, self._world, self._world.options.checkpoints
        self._reach(goal - 1)
        self._check_folders()
        path = self.toolbox.make(supervisor.folder)
        tool = self.toolbox.tools[-1]
        world.oracle.holds(
            bool(path) or "no checkpoint of the current lineage" in str(tool.error),
            f"I8: no savepoint can be made: {tool.error!r}",
        )
        supervisor.restore_path = None
        if path:
            path = self._move(path, keeps=False)
            supervisor.restore(path)
        self._reach(goal)
        world.oracle.holds(
            not path or path in world.oracle.restored, f"{path} was not restored in the end"
        )
        check_end(world, supervisor.folder)

    def _reach(self, goal: int) -> None:
        last = self._supervisor.start(goal, None)
        self._supervisor.wait_for_the_end()
        self._supervisor.last_error = last.error
        self._world.oracle.holds(last.reached, f"the job does not go on: {last.error!r}")

    def _check_folders(self) -> None:
        """What a restore that has died has laid of Spark's folder is gone."""
        found = self._world.disk.find(f"{self._supervisor.folder}/spark")
        assert isinstance(found, Folder)
        known = {
            lineage
            for root, lineage in self._world.oracle.saved.begun
            if root == self._supervisor.folder
        }
        self._world.oracle.holds(
            found.entries.keys() <= known, f"{sorted(found.entries.keys() - known)} are left over"
        )

    # -- what is there -----------------------------------------------------------------------------

    def _chunks(self) -> set[int]:
        return {decision.chunk for decision in self._world.oracle.decided.values()}

    def _has(self, chunks: int) -> bool:
        return len(self._chunks()) >= min(chunks, self._world.options.checkpoints - 1)

    def _is_behind(self, path: str) -> bool:
        saved = self.toolbox.saved(path)
        return saved is not None and any(map(saved.is_behind, self._decided()))

    def _is_shown(self, path: str) -> bool:
        saved, oracle = self.toolbox.saved(path), self._world.oracle
        return saved is not None and any(
            saved.is_behind(decision) and any(xid in oracle.visible for xid in decision.xids)
            for decision in self._decided()
        )

    def _decided(self) -> list[Decision]:
        """The decided checkpoints, and those that a sink is ahead in."""
        return [*self._world.oracle.decided.values(), *self._world.oracle.ahead.values()]
