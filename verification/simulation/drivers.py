"""The drivers of a run, and who starts them: an operator, a cron job, a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    InDoubtError,
    LostCommittableError,
    RestoreRefusedError,
    TargetChangedError,
)
from verification.simulation.driver import Driver
from verification.simulation.ending import DriverEnding
from verification.simulation.options import Mishap
from verification.simulation.scheduler import Process
from verification.simulation.spark import Executors
from verification.simulation.world import World

LOSSES: tuple[type[Exception], ...] = (LostCommittableError, TargetChangedError)
_REFUSALS = (CheckpointMissingError, RestoreRefusedError, ConfigError, FencedError)
_PATIENCE_S = 0.1
_LIVES_ON_S = 4.0
_MAX_DRIVERS = 60


class Program(Protocol):
    """A driver, or a command."""

    @property
    def process(self) -> Process:
        """What can be killed."""

    @property
    def executors(self) -> Executors:
        """Its tasks."""


class Drivers:
    """Starts drivers of one job, in its folder and with its option `restore.path` as they are now.

    Args:
        world: where.
        folder: the job's folder.
        judge: hears of each failure of a driver.

    Attributes:
        all: those that were started.
        last_error: what ended the one that was started when nothing went wrong any more; None
            without one, or if it has reached its goal.
        folder: the job's folder.
        restore_path: the job's option.
        settled: those whose end somebody has repaired.
        stops: the errors after which the storm is over.
        commands: returns the commands that were run beside them.
        choose_again: called when a restore is refused.
    """

    def __init__(self, world: World, folder: str, judge: Callable[[DriverEnding], None]) -> None:
        self.all: list[Driver] = []
        self.last_error: Exception | None = None
        self.folder = folder
        self.restore_path: str | None = None
        self.settled: list[Driver] = []
        self.stops = LOSSES
        self.commands: Callable[[], Sequence[Program]] = list
        self.choose_again: Callable[[], None] = self.restore_newest
        self._world = world
        self._scheduler = world.scheduler
        self._judge = judge
        self._mishaps = list(world.options.mishaps[::-1])
        self._rivals_due = 0
        self._chosen_at: Counter[str] = Counter()
        world.faults.on_stall = self._suspect

    def storm(self, reached: Callable[[], bool]) -> None:
        """Start one after the other, and rivals, until something is reached or the job stops."""
        goal = self._world.options.checkpoints - 1

        def over() -> bool:
            return reached() or self.is_stopped()

        while not over():
            if not self.living():
                if self.restore_path is not None and isinstance(self.all[-1].error, _REFUSALS):
                    # an old driver has gone on meanwhile, or somebody has damaged the folder
                    self.choose_again()
                self._scheduler.sleep(_PATIENCE_S)
                self.start(goal, self.next_mishap())
            elif self._rivals_due:
                self._rivals_due -= 1
                if len(self.living()) < self._world.options.drivers:
                    self.start(goal, self.next_mishap())
            self._scheduler.wait_until(
                lambda: over() or not self.living() or self._rivals_due > 0, None
            )

    def start(self, goal: int, mishap: Mishap | None = None) -> Driver:
        """Start one, to write so many chunks of the input."""
        records = self._chosen_at
        if self.restore_path is None:
            records = self._world.oracle.records.copy()
        driver = Driver(
            self._world,
            len(self.all),
            self.folder,
            self.restore_path,
            goal,
            records,
            self._judge,
        )
        if len(self.all) >= _MAX_DRIVERS:
            self._world.oracle.violated(f"{_MAX_DRIVERS} drivers did not get the job done")
        driver.process.on_death.append(lambda _: self.orphan(driver))
        if mishap is not None:
            self._world.faults.arm(driver.process, mishap)
        self.all.append(driver)
        self._scheduler.spawn(driver.process, driver.process.name, driver.run)
        return driver

    def start_last(self, goal: int) -> Driver:
        """Start one, and wait for its end."""
        driver = self.start(goal)
        self.wait_for_the_end()
        self.last_error = driver.error
        return driver

    def next_mishap(self) -> Mishap | None:
        """What is to befall the next one."""
        return self._mishaps.pop() if self._mishaps else None

    def arm_next(self, mishap: Mishap) -> None:
        """Let something befall the next one."""
        self._mishaps.append(mishap)

    def rival(self) -> None:
        """Have one more started, whoever lives."""
        self._rivals_due += 1

    def living(self) -> list[Driver]:
        """Those that live."""
        return [driver for driver in self.all if not driver.process.dead]

    def fresh(self) -> list[Driver]:
        """Those whose end nobody has repaired."""
        return [driver for driver in self.all if driver not in self.settled]

    def has_reached(self) -> bool:
        """Whether one has reached its goal."""
        return any(driver.reached and driver not in self.settled for driver in self.all)

    def is_stopped(self) -> bool:
        """Whether the job has found that a decided piece is gone, or that a target
        is not what it was; or whatever else is to be read.
        """
        return any(map(self._is_to_be_read, self.fresh()))

    def newest_stopped(self) -> Driver:
        """The newest one that has ended with an error that is to be read."""
        return [driver for driver in self.fresh() if self._is_to_be_read(driver)][-1]

    def _is_to_be_read(self, driver: Driver) -> bool:
        mends_itself = isinstance(driver.error, FencedError | InDoubtError)
        return isinstance(driver.error, self.stops) and not mends_itself

    def wait_for_the_end(self) -> None:
        """Wait until no driver, command or task lives."""
        self._scheduler.wait_until(lambda: not self.processes() and not self._late_tasks(), None)

    def calm_down(self) -> None:
        """Nothing goes wrong any more: wait for the end of all, and for the servers."""
        self._world.faults.calm = True
        self.wait_for_the_end()
        servers = self._world.servers
        self._scheduler.wait_until(lambda: all(server.up for server in servers), None)

    # -- what befalls them -------------------------------------------------------------------------

    def processes(self) -> list[Process]:
        """The drivers and commands that live."""
        return [one.process for one in self._programs() if not one.process.dead]

    def end(self) -> None:
        """Kill the drivers."""
        for driver in self.living():
            driver.process.kill()

    def end_all(self) -> None:
        """Kill drivers and commands."""
        for process in self.processes():
            process.kill()

    def cut_power(self, notice_s: float) -> None:
        """Kill them with all their tasks; servers hear of it after some time."""
        for driver in self.all:
            driver.process.kill(notice_s)
            for task in driver.executors.processes:
                task.kill(notice_s)

    def orphan(self, program: Program) -> None:
        """The workers of a dead driver find out sooner or later."""
        for task in program.executors.processes:
            if self._world.faults.calm or self._scheduler.random.random() < 0.5:
                task.kill()
            elif not task.dead:
                self._world.faults.arm(task, Mishap.of_latecomer(self._scheduler.random))
                self._scheduler.at(self._scheduler.now_s + _LIVES_ON_S, task.kill)

    def _programs(self) -> Sequence[Program]:
        return [*self.all, *self.commands()]

    def _late_tasks(self) -> bool:
        return any(not task.dead for one in self._programs() for task in one.executors.processes)

    def _suspect(self) -> None:
        """Who stands still looks dead."""
        if self._scheduler.random.random() < self._world.options.suspicion:
            self.rival()

    # -- restores ----------------------------------------------------------------------------------

    def restore(self, path: str | None, chosen_at: Counter[str] | None = None) -> None:
        """From now on drivers are started with the job's option `restore.path`.

        Args:
            path: the option.
            chosen_at: what the logs held when it was chosen; without it, what they hold now.
        """
        self.restore_path = path
        self._chosen_at = self._world.oracle.records.copy() if chosen_at is None else chosen_at

    def restore_newest(self) -> None:
        """Restore the newest checkpoint, unless that was done."""
        if self._world.oracle.repaired.damaged:
            self.restore_path = None  # what it names may be gone
        elif self.restore_path not in self._world.oracle.restored:
            newest = max(self._world.oracle.decided.values(), key=lambda decision: decision.chunk)
            self.restore(newest.body.removesuffix("/_metadata"))

    def is_restored(self) -> bool:
        """Whether a lineage has begun with what the option names, if it names anything."""
        return self.restore_path is None or self.restore_path in self._world.oracle.restored

    def is_restore_durable(self) -> bool:
        """Whether what the option names survives a power cut."""
        return any(
            decision.durable
            for decision in self._world.oracle.decided.values()
            if decision.body == f"{self.restore_path}/_metadata"
        )
