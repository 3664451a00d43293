"""What befalls the job's folder and its targets as a whole: a copy beside a live driver, a target
restored or swapped.

No seed of `Options.of` chooses these worlds: `in_world` makes the runs of a seed in one of them.

- copied: a driver over a copy of the folder, with or without a restore, beside the one over the
  original. One of them writes everything exactly; the other, or both, end with a named error, and
  no sink's checkpoint is aborted in another.
- target restored: a server's data is restored from a backup, under a running driver or between two.
  Nothing that was committed is lacking, or the job ends with a named error and goes on for nobody.
- swapped: another server, empty or older, or a table that was dropped and created again. The same.
- repaired: a loss that stops the job by name, of some after a restore; an operator runs the repair
  that the error names, see `incidents` and `repairs`. Nothing is duplicated; what was given up is
  missing, and nothing else.
- released: a driver that is asked to stop gives its checkpoints up, also while others take over or
  it dies. Decided checkpoints are visible, nothing is left, and no start goes on.
- saved: savepoints are made, finished, moved and restored, see `savepoints`. Everything is exact,
  and one that a sink is ahead of is refused, with nothing written or aborted.
- ahead: sinks commit ahead of the others (`checkpoint.mode`), in some of the drivers. Each sink has
  every row once, and what a sink has ahead is never aborted, nor written again.
- saved ahead: both at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from verification.simulation.dialects import DIALECTS
from verification.simulation.options import Mishap, Options
from verification.simulation.server import Backup

if TYPE_CHECKING:
    from verification.simulation.driver import Driver
    from verification.simulation.world import World

COPIED, RESTORED_TARGET, SWAPPED, REPAIRED, RELEASED, SAVED, AHEAD, SAVED_AHEAD = WORLDS = (
    "copied",
    "target restored",
    "swapped",
    "repaired",
    "released",
    "saved",
    "ahead",
    "saved ahead",
)
WITH_SAVEPOINTS = frozenset({SAVED, SAVED_AHEAD})
WITH_SINKS_AHEAD = frozenset({AHEAD, SAVED_AHEAD})
COPY, BESIDE = "/data/copy", "/data/beside"
_DELAYS_S = (0.0, 0.003, 0.03, 0.3)
_WAITING_S = 0.001
_DOWNTIME_S = 0.1
_STOPS_S = (0.0, 20.0)
"""A driver that gives its checkpoints up is killed, or stands still until another one is there."""


def in_world(seed: int, world: str) -> Options:
    """The run that a seed stands for in a world: nobody meddles by hand, and the
    machine keeps its power.
    """
    options = Options.of(seed)
    random = Random(f"options {world} {seed}")
    options = replace(options, world=world, restore="", meddling="", emptied=False, power_cuts=0)
    options = replace(options, checkpoints=max(options.checkpoints, 3))
    if world == COPIED:
        return replace(options, rivals=0, suspicion=0.0)
    if world == RELEASED:
        more = [
            Mishap(random.choice(("G01", "G02", "C17", "C20")), 1, random.choice(_STOPS_S))
            for _ in range(2)
        ]
        mishaps = tuple(random.sample((*options.mishaps, *more), len(options.mishaps) + 2))
        stops = random.choice((1, 2, 4))
        return replace(
            options, stops=stops, mishaps=mishaps, suspicion=0.8, retention="delete_on_cancellation"
        )
    if world in WITH_SINKS_AHEAD:
        options = _with_sinks_ahead(options, random)
    if world == AHEAD:
        return options
    if world in WITH_SAVEPOINTS:
        points = [
            random.choice(("S05", "S06", "S07", "S11", "S12", "S13", "C18", "C22"))
            for _ in range(2)
        ]
        more = [Mishap(point, 1, random.choice(_STOPS_S)) for point in points]
        mishaps = tuple(random.sample((*options.mishaps, *more), len(options.mishaps) + 2))
        checkpoints = max(options.checkpoints, 4)
        return replace(options, checkpoints=checkpoints, mishaps=mishaps, stops=0)
    if world == REPAIRED:
        subsume_every = random.choice((1, 2, 3))
        restore = random.choice(("here", "", ""))
        checkpoints = options.checkpoints + (2 if restore else 0)
        return replace(
            options,
            keyed=False,
            subsume_every=subsume_every,
            restore=restore,
            checkpoints=checkpoints,
        )
    return replace(
        options, empty_rate=random.choice((0.1, 0.4)), subsume_every=random.choice((1, 1, 2))
    )


def _with_sinks_ahead(options: Options, random: Random) -> Options:
    """Several sinks, and drivers that die or stand still while one is ahead."""
    points = [random.choice(("A01", "A02", "C06", "C12", "C15", "C22")) for _ in range(3)]
    more = [Mishap(point, random.choice((1, 2)), random.choice(_STOPS_S)) for point in points]
    mishaps = tuple(random.sample((*options.mishaps, *more), len(options.mishaps) + 3))
    sinks = tuple(random.choice(list(DIALECTS)) for _ in range(random.choice((2, 2, 3))))
    sinks = sinks[:1] * len(sinks) if options.one_server else sinks
    return replace(options, sinks=sinks, mishaps=mishaps, max_concurrent=1)


class _Moment:
    """A moment in a run: some time after so many decisions.

    Args:
        random: draws the time.
        decisions: so many; 0 is the start of the run.
    """

    def __init__(self, random: Random, decisions: int) -> None:
        self.decisions = decisions
        self.delay_s = random.choice(_DELAYS_S) * random.random()


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
        self._changes = _Moment(random, random.randint(1, options.checkpoints - 1))
        self._backs_up = _Moment(random, random.randint(0, self._changes.decisions))
        self._between_runs = random.random() < 0.4
        self._sink = random.randrange(len(options.sinks))
        self._backup: Backup | None = None
        self._reach(self._backs_up, self._back_up)

    def decided(self) -> None:
        """One more decision."""
        self._decisions += 1
        self._reach(self._backs_up, self._back_up)
        self._reach(self._changes, self._change)

    def _reach(self, moment: _Moment, action: Callable[[], None]) -> None:
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
        world.oracle.restore_backup(server, backup, is_another=self._kind != RESTORED_TARGET)
        back_s = world.scheduler.now_s + _DOWNTIME_S * world.scheduler.random.random()
        return world.scheduler.at(back_s, lambda: setattr(server, "up", True))


@dataclass
class Site:
    """A job's folder, and who starts drivers over it.

    Attributes:
        folder: the folder.
        due: whether drivers are started over it.
        restore_path: the job's option.
        records: what the logs held when the restore was chosen.
        drivers: those that were started.
    """

    folder: str
    due: bool = True
    restore_path: str | None = None
    records: Counter[str] = field(default_factory=Counter)
    drivers: list[Driver] = field(default_factory=list)

    def is_stopped(self) -> bool:
        """Whether its last driver has ended with an error after which none is started."""
        error = self.drivers[-1].error if self.drivers else None
        return error is not None and not getattr(error, "restartable", True)

    def needs_driver(self) -> bool:
        """Whether somebody starts a driver here."""
        return (
            self.due
            and not self.is_stopped()
            and all(driver.process.dead for driver in self.drivers)
        )


class Standby:
    """A second driver over a copy of the folder, which is made at some moment and has its
    driver at a later one.

    Args:
        world: where.
        folder: the original.
    """

    def __init__(self, world: World, folder: str) -> None:
        options = world.options
        random = Random(f"{options.world} {options.seed}")
        self._world = world
        self._original = folder
        self._decisions = 0
        self._copied = _Moment(random, random.randint(1, options.checkpoints - 2))
        self._waits_s = random.choice((0.0, *_DELAYS_S)) * random.random()
        self._kind = random.choice(("plain", "plain", "restore", "beside"))
        self.site = Site(BESIDE if self._kind == "beside" else COPY, due=False)

    def decided(self) -> None:
        """One more decision."""
        self._decisions += 1
        if self._decisions == self._copied.decisions:
            scheduler = self._world.scheduler
            scheduler.at(scheduler.now_s + self._copied.delay_s, self._copy)

    def _copy(self) -> None:
        world = self._world
        if world.faults.calm:
            return
        newest = max(world.oracle.decided.values(), key=lambda decision: decision.chunk)
        body = newest.body.removesuffix("/_metadata")
        world.oracle.several_folders = True
        if self._kind != "beside":
            world.copy_folder(self._original, COPY)
            body = body.replace(self._original, COPY, 1)
        self.site.records = world.oracle.records.copy()
        self.site.restore_path = None if self._kind == "plain" else body
        world.happens(f"copied: {self._kind}")
        world.scheduler.at(world.scheduler.now_s + self._waits_s, self._start)

    def _start(self) -> None:
        if not self._world.faults.calm:
            self.site.due = True
