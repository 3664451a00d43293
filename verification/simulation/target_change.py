"""A target that is restored from a backup or swapped: what befalls two of the `worlds`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from verification.simulation.moments import Moment
from verification.simulation.server import Backup
from verification.simulation.worlds import RESTORED_TARGET, SWAPPED

if TYPE_CHECKING:
    from verification.simulation.world import World

_WAITING_S = 0.001
_DOWNTIME_S = 0.1


class TargetChange:
    """A target is restored from a backup or swapped, once.

    Args:
        world: where.
        end_drivers: ends all drivers that live.
    """

    def __init__(self, world: World, end_drivers: Callable[[], None]) -> None:
        options = world.options
        random = Random(f"{options.world} {options.seed}")
        self.over = False
        self._world = world
        self._end_drivers = end_drivers
        self._decisions = 0
        self._kind = (
            random.choice(("older server", "empty server", "table"))
            if options.world == SWAPPED
            else RESTORED_TARGET
        )
        self._changes = Moment(random, random.randint(1, options.checkpoints - 1))
        self._backs_up = Moment(random, random.randint(0, self._changes.decisions))
        self._between_runs = random.random() < 0.4
        if behind := options.restored_behind:
            self._changes.decisions, self._between_runs = behind, False
            self._backs_up.decisions, self._backs_up.delay_s = random.randint(1, behind - 1), 0.0
        self._sink = random.randrange(len(options.sinks))
        self._backup: Backup | None = None
        self._reach(self._backs_up, self._back_up)

    def decided(self) -> None:
        """One more decision."""
        self._decisions += 1
        self._reach(self._backs_up, self._back_up)
        self._reach(self._changes, self._change)

    def _reach(self, moment: Moment, action: Callable[[], None]) -> None:
        if moment.decisions == self._decisions:
            scheduler = self._world.scheduler
            scheduler.at(scheduler.now_s + moment.delay_s, action)

    def _back_up(self) -> None:
        """One piece of a checkpoint stands for all of them: a backup that is made in
        mid-commit is a known limit.
        """
        _, server = self._world.targets_and_servers()[self._sink]
        if self._world.oracle.is_in_mid_commit() or not server.engine.table("schema"):
            if self.over:
                return None
            return self._world.scheduler.at(self._world.scheduler.now_s + _WAITING_S, self._back_up)
        self._backup = server.back_up()
        return None

    def _change(self) -> None:
        if self.over or (self._backup is None and self._kind in (RESTORED_TARGET, "older server")):
            return None
        world = self._world
        name, server = world.targets_and_servers()[self._sink]
        if self._kind == "table" and server.is_in_use(name):
            # DROP TABLE waits
            return world.scheduler.at(world.scheduler.now_s + _WAITING_S, self._change)
        if self._between_runs or (self._kind == "empty server" and server.dialect.is_mariadb):
            # a driver that has seen no id of its server would pre-commit what the
            # next one cannot find
            self._end_drivers()
        world.happens(self._kind)
        if self._kind == "table":
            world.oracle.empty(server, name)
            world.catalogues[server.name].recreate(name)
            return None
        if self._kind != RESTORED_TARGET:
            world.catalogues[server.name].become_another()
        backup = Backup() if self._kind == "empty server" or self._backup is None else self._backup
        world.oracle.restore_backup(server, backup)
        back_s = world.scheduler.now_s + _DOWNTIME_S * world.scheduler.random.random()
        return world.scheduler.at(back_s, lambda: setattr(server, "up", True))
