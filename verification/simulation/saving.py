"""How the operators of `savepoints` work through their plans, beside who starts drivers.

In the calm the job has to be stopped, saved, moved and restored once more, and be exact.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twophase.errors import ConfigError, RestoreRefusedError
from verification.simulation.decisions import Decision
from verification.simulation.disk import File, Folder, Node
from verification.simulation.savepoints import BESIDE, HERE, KEPT, STOPPED, Plan, Toolbox, plans_of

if TYPE_CHECKING:
    from verification.simulation.drivers import Drivers
    from verification.simulation.world import World

_REFUSED = (RestoreRefusedError, ConfigError)


class Saving:
    """Works through the plans of a run.

    Args:
        world: where.
        drivers: those of the job.
        toolbox: runs the commands.
    """

    def __init__(self, world: World, drivers: Drivers, toolbox: Toolbox) -> None:
        self._world = world
        self._drivers = drivers
        self._toolbox = toolbox
        self._left = ""
        self._is_too_old = False
        self._moves = 0

    def work(self) -> None:
        """The storm, with the plans in it; then the calm."""
        drivers, options = self._drivers, self._world.options
        for plan in plans_of(options.seed, options.checkpoints):
            drivers.storm(partial(self._has, plan.after))
            self._carry_out(plan)
        drivers.storm(lambda: self._has(options.checkpoints - 1))
        drivers.calm_down()
        if drivers.restore_path not in self._world.oracle.restored:
            self.give_up()
        self._end()

    def give_up(self) -> None:
        """A restore was refused: the job goes on where it was."""
        if self._drivers.restore_path is None:
            return
        self._world.happens("not restored")
        self._world.sink_ahead = "refuse"
        self._drivers.restore_path = None
        self._drivers.folder = self._left

    def refused(self) -> None:
        """A driver that was to restore has ended with a refusal."""
        driver = self._drivers.all[-1]
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
        self._drivers.storm(lambda: self._has(chunks + plan.goes_on))
        if plan.finishes:
            self._toolbox.finish(self._drivers.folder, path)
        if plan.forks:
            self._toolbox.fork(path)
        if plan.used != KEPT:
            self._restore(plan, path)

    def _make(self, plan: Plan) -> str:
        folder, living = self._drivers.folder, self._drivers.living()
        if plan.made != STOPPED:
            if plan.made != BESIDE:
                self._drivers.end()
            return self._toolbox.make(folder, committed_only=plan.committed_only)
        if not living or living[0].stopping:
            return ""
        path = self._toolbox.path()
        living[0].stop_with_savepoint(path)
        self._world.scheduler.wait_until(lambda: living[0].process.dead, None)
        if self._toolbox.saved(path) is None:
            return ""
        if len(living) == 1:
            self._toolbox.is_newest(path)
        return path

    def _restore(self, plan: Plan, path: str) -> None:
        drivers, world = self._drivers, self._world
        self._left = drivers.folder
        if plan.used == HERE:
            if ends := world.scheduler.random.random() < 0.5:
                drivers.end()
            else:
                drivers.rival()
            self._is_too_old = ends and self._is_behind(path)
        else:
            drivers.end()
            self._is_too_old = self._is_shown(path)
            path = self._move(path, keeps=self._is_behind(path))
        world.reads_other_sources = plan.other_sources
        self._is_too_old = self._is_too_old and not plan.rewinds
        if plan.rewinds:
            world.sink_ahead = "rewind"
            world.oracle.saved.rewinders.add(drivers.folder)
        drivers.restore(path)
        drivers.storm(lambda: drivers.restore_path is None or path in world.oracle.restored)
        if drivers.restore_path is None:
            return
        if plan.rewinds:
            world.happens("restored with a rewind")
            world.sink_ahead = "refuse"
        world.happens(f"restored: {plan.used}{' by other sources' if plan.other_sources else ''}")
        if world.scheduler.random.random() < 0.5:  # the option may stay set
            drivers.restore_path = None

    def _move(self, path: str, *, keeps: bool) -> str:
        """Carry a savepoint to where an empty folder waits."""
        drivers = self._drivers
        self._moves += 1
        folder = f"/data/restored{self._moves}"
        path = self._toolbox.move(path)
        self._world.oracle.saved.moved_to[folder] = path
        if not keeps and self._world.scheduler.random.random() < 0.5:
            self._toolbox.remove(drivers.folder)
            self._world.happens("the job's folder is gone")
        drivers.folder = folder
        return path

    # -- the end -----------------------------------------------------------------------------------

    def _end(self) -> None:
        """Nobody is in the way: the job goes on in its folder, then from a savepoint elsewhere."""
        drivers, world, goal = self._drivers, self._world, self._world.options.checkpoints
        self._reach(goal - 1)
        self._check_folders()
        path = self._toolbox.make(drivers.folder)
        tool = self._toolbox.tools[-1]
        world.oracle.holds(
            bool(path) or "no checkpoint of the current lineage" in str(tool.error),
            f"I8: no savepoint can be made: {tool.error!r}",
        )
        drivers.restore_path = None
        if path:
            path = self._move(path, keeps=False)
            drivers.restore(path)
        self._reach(goal)
        world.oracle.holds(
            not path or path in world.oracle.restored, f"{path} was not restored in the end"
        )

    def _reach(self, goal: int) -> None:
        last = self._drivers.start_last(goal)
        self._world.oracle.holds(last.reached, f"the job does not go on: {last.error!r}")

    def _check_folders(self) -> None:
        """What a restore that has died has laid of Spark's folder is gone; an empty folder may be
        left, whose note of who laid it was not written yet, or deleted last.
        """
        found = self._world.disk.find(f"{self._drivers.folder}/spark")
        assert isinstance(found, Folder)
        known = {
            lineage
            for root, lineage in self._world.oracle.saved.begun
            if root == self._drivers.folder
        }
        left = {name for name in found.entries.keys() - known if _has_data(found.entries[name])}
        self._world.oracle.holds(not left, f"{sorted(left)} are left over")

    # -- what is there -----------------------------------------------------------------------------

    def _chunks(self) -> set[int]:
        return {decision.chunk for decision in self._world.oracle.decided.values()}

    def _has(self, chunks: int) -> bool:
        return len(self._chunks()) >= min(chunks, self._world.options.checkpoints - 1)

    def _is_behind(self, path: str) -> bool:
        saved = self._toolbox.saved(path)
        return saved is not None and any(map(saved.is_behind, self._decided()))

    def _is_shown(self, path: str) -> bool:
        saved, oracle = self._toolbox.saved(path), self._world.oracle
        return saved is not None and any(
            saved.is_behind(decision) and any(xid in oracle.visible for xid in decision.xids)
            for decision in self._decided()
        )

    def _decided(self) -> list[Decision]:
        """The decided checkpoints, and those that a sink is ahead in."""
        return [*self._world.oracle.decided.values(), *self._world.oracle.ahead.values()]


def _has_data(node: Node) -> bool:
    if isinstance(node, File):
        return bool(node.data)
    return any(map(_has_data, node.entries.values()))
