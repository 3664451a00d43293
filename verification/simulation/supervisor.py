"""Runs one seed: starts drivers, lets things go wrong, brings the job to its end, and looks at
what is there then.
"""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    LostCommittableError,
    RestoreRefusedError,
    TargetChangedError,
)
from twophase.events import Event
from verification.simulation.decisions import Decision
from verification.simulation.driver import Driver
from verification.simulation.ending import Ending
from verification.simulation.incidents import Incident, incident
from verification.simulation.options import Mishap, Options
from verification.simulation.repairs import Operator, Repair
from verification.simulation.savepoints import Tool
from verification.simulation.saving import Saving
from verification.simulation.scheduler import Process
from verification.simulation.verdict import (
    check_end,
    check_lost,
    check_refused,
    check_released,
    judge,
)
from verification.simulation.world import World
from verification.simulation.worlds import (
    COPIED,
    RELEASED,
    REPAIRED,
    RESTORED_TARGET,
    SWAPPED,
    WITH_SAVEPOINTS,
    Site,
    Standby,
    TargetChange,
)

_FOLDER, _RESTORED_FOLDER = "/data/job", "/data/restored"
_STORM_STEPS = 1500
_PATIENCE_S = 0.1
_REFUSALS = (CheckpointMissingError, RestoreRefusedError, ConfigError, FencedError)
_LOSSES = (LostCommittableError, TargetChangedError)
_LIVES_ON_S = 4.0
_MEDDLING_S = 0.05
_MAX_DRIVERS = 60


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        options: what it was like.
        violation: what did not hold; empty if everything did.
        points: how often each crash point was reached.
        steps: inputs and outputs.
        trace: who did what.
        reported: what drivers have reported, see `telling`.
        last_error: what ended the driver that is started when the storm is over; None without
            one, or at its goal.
        limit: the known limit that has ended the run; empty if none has.
    """

    options: Options
    violation: str
    points: Counter[str]
    steps: int
    trace: list[tuple[str, str]]
    reported: list[tuple[int, Event]]
    last_error: Exception | None
    limit: str

    @property
    def digest(self) -> str:
        """Stands for everything that happened, in its order."""
        return hashlib.sha256(repr((self.violation, self.trace)).encode()).hexdigest()

    def __str__(self) -> str:
        seed, world = (
            self.options.seed,
            f" --world '{self.options.world}'" if self.options.world else "",
        )
        return (
            f"seed {seed}: {self.violation}\n{self.options}\n"
            f"  replay: python -m verification.simulation --seed {seed}{world}"
        )


def run(options: Options) -> Outcome:
    """Run one seed."""
    world = World(options)
    supervisor = Supervisor(world)
    with world.entered():
        operator = world.scheduler.spawn(Process("operator"), "operator", supervisor.work)
        world.scheduler.run()
    violation = world.scheduler.failure
    if world.oracle.limit:
        violation = ""
    elif not violation and operator.error is not None:
        violation = "the simulation itself failed: " + "".join(
            traceback.format_exception(operator.error)
        )
    steps, trace, reported = world.scheduler.steps, world.scheduler.trace, world.telling.trace
    return Outcome(
        options,
        violation,
        world.faults.points,
        steps,
        trace,
        reported,
        supervisor.last_error,
        world.oracle.limit,
    )


class Supervisor:
    """Who starts drivers: an operator, a cron job, a cluster.

    Args:
        world: where.

    Attributes:
        last_error: what ended the last driver, if it did not reach its goal.
        folder: the job's folder.
        restore_path: the job's option.
    """

    def __init__(self, world: World) -> None:
        self.last_error: Exception | None = None
        self._world = world
        self._scheduler = world.scheduler
        self._options = world.options
        self._drivers: list[Driver] = []
        self._mishaps = list(world.options.mishaps[::-1])
        self._rivals_due = 0
        self.folder = _FOLDER
        self.restore_path: str | None = None
        self._chosen_at: Counter[str] = Counter()
        self._meddled = False
        self._judges = True
        self._stops: tuple[type[Exception], ...] = _LOSSES
        if world.options.world in (REPAIRED, RELEASED):
            self._stops = (*_LOSSES, CheckpointMissingError)
        elif world.options.world in WITH_SAVEPOINTS:
            self._stops = ()  # of drivers that were overtaken by a rewind; `judge` has seen them
        world.faults.on_stall = self._suspect
        world.oracle.on_decided = self._decided
        self._change = (
            TargetChange(world, self.end_drivers)
            if world.options.world in (RESTORED_TARGET, SWAPPED)
            else None
        )
        self._operator = Operator(
            world, self.folder, lambda: self.start(self._options.checkpoints - 1, None)
        )
        self._operator.on_death = self._orphan
        self._settled: list[Driver] = []
        self._incident = Incident()
        if world.options.world == REPAIRED:
            self._incident = incident(world, self._processes, self._end_all, self._operator.run)
            self._operator.dies_at_record = self._incident.kills_at_record
        world.oracle.on_repaired = self._recorded
        self._saving = Saving(world, self)
        self._standby = Standby(world, _FOLDER) if world.options.world == COPIED else None
        plan = world.faults.plan
        plan(self._options.rivals, _STORM_STEPS, self.rival)
        plan(self._options.power_cuts, _STORM_STEPS, self._cut_power)
        plan(self._options.stops, _STORM_STEPS, self._stop_one)
        for server in world.servers:
            plan(self._options.server_crashes, _STORM_STEPS, partial(world.faults.crash, server))

    def work(self) -> None:
        """The storm: until all chunks but the last are written. Then the calm: one more driver,
        alone, writes the last.
        """
        if self._standby is not None:
            self._work_in_two_folders(Site(_FOLDER), self._standby.site)
            return
        if self._options.world == REPAIRED:
            self._work_with_repairs()
            return
        if self._options.world == RELEASED:
            self._work_until_released()
            return
        if self._options.world in WITH_SAVEPOINTS:
            self._saving.work()
            return
        if self._options.restore:
            self.storm(lambda: len(self._world.oracle.decided) >= self._options.checkpoints // 2)
            self._move()
        self.storm(lambda: any(driver.reached for driver in self._drivers))
        self._world.faults.calm = True
        self.wait_for_the_end()
        if self._change is not None:
            self._change.over = True
            self._end_after_a_change()
            return
        if self._is_stopped():
            check_lost(self._world)
            return
        self._scheduler.wait_until(lambda: all(server.up for server in self._world.servers), None)
        if self._options.restore == "here" and self.restore_path not in self._world.oracle.restored:
            self.restore_path = None  # the old driver has never been ended, and did it all
        last = self.start(self._options.checkpoints, None)
        self.wait_for_the_end()
        self.last_error = last.error
        # it was the first that had to commit that piece; `judge` has seen its error
        if self._is_stopped():
            check_lost(self._world)
            return
        self._world.oracle.holds(last.reached, f"the job does not go on: {last.error!r}")
        check_end(self._world, self.folder)
        if self._options.emptied:
            self.folder, self.restore_path = "/data/emptied", None
            self._judges = False
            refused = self.start(self._options.checkpoints, None)
            self.wait_for_the_end()
            check_refused(self._world, self.folder, refused.error)

    def _end_after_a_change(self) -> None:
        """One more driver: it goes on exactly if nothing is missing; otherwise it has to say so."""
        oracle = self._world.oracle
        self._scheduler.wait_until(lambda: all(server.up for server in self._world.servers), None)
        last = self.start(self._options.checkpoints, None)
        self.wait_for_the_end()
        self.last_error = last.error
        if last.reached:
            oracle.holds(
                not oracle.missing(),
                f"I8: the job goes on, and {sorted(oracle.missing())} are missing",
            )
            check_end(self._world, self.folder)
            return
        oracle.holds(isinstance(last.error, _LOSSES), f"the job does not go on: {last.error!r}")
        self._world.happens(f"stopped: {type(last.error).__name__}")
        check_lost(self._world)

    def _work_in_two_folders(self, *sites: Site) -> None:
        """Until a driver over one of the folders has written all chunks but the last, or none may
        be started any more.
        """

        def over() -> bool:
            return any(driver.reached for driver in self._drivers) or all(
                site.is_stopped() for site in sites if site.due
            )

        while not over():
            for site in [site for site in sites if site.needs_driver()]:
                if site.drivers:
                    self._scheduler.sleep(_PATIENCE_S)
                self._start_at(
                    site,
                    self._options.checkpoints - 1,
                    self._mishaps.pop() if self._mishaps else None,
                )
            self._scheduler.wait_until(
                lambda: over() or any(site.needs_driver() for site in sites), None
            )
        self._world.faults.calm = True
        self.wait_for_the_end()
        self._scheduler.wait_until(lambda: all(server.up for server in self._world.servers), None)
        if left := [site for site in sites if site.drivers and not site.is_stopped()]:
            newest = max(left, key=lambda site: self._world.oracle.generation.get(site.folder, 0))
            last = self._start_at(newest, self._options.checkpoints, None)
            self.wait_for_the_end()
            self.last_error = last.error
            if last.reached:
                self._world.happens(
                    "goes on in the copy" if newest is not sites[0] else "goes on in the original"
                )
                return check_end(self._world, newest.folder)
            self._world.oracle.holds(newest.is_stopped(), f"the job does not go on: {last.error!r}")
        self._world.happens("stopped in both folders")
        return check_lost(self._world)

    def _work_with_repairs(self) -> None:
        """The storm, and a repair whenever the job has stopped. In the calm the same, until one
        more driver has written the last.
        """
        goal = self._options.checkpoints - 1
        if self._options.restore:
            self._repair_until(
                lambda: len(self._world.oracle.decided) >= self._options.checkpoints // 2
            )
            self._move()
            self.storm(
                lambda: (
                    self.restore_path is None or self.restore_path in self._world.oracle.restored
                )
            )
            self.restore_path = None
        self._repair_until(lambda: any(driver.reached for driver in self._fresh()))
        self._world.faults.calm = True
        self._incident.end()
        self.wait_for_the_end()
        self._scheduler.wait_until(lambda: all(server.up for server in self._world.servers), None)
        while True:
            self._settled = [*self._drivers]
            last = self.start(goal + 1, None)
            self.wait_for_the_end()
            self.last_error = last.error
            if last.reached:
                return check_end(self._world, self.folder)
            if not self._is_stopped():
                self._world.oracle.violated(f"the job does not go on: {last.error!r}")
            self._repair()

    def _work_until_released(self) -> None:
        """The storm, until a driver that was stopped has given the checkpoints up, or all chunks
        but the last are written; then a last driver does. A start after it is refused.
        """
        goal, oracle = self._options.checkpoints, self._world.oracle
        self.storm(lambda: any(driver.reached for driver in self._drivers))
        self._world.faults.calm = True
        self.wait_for_the_end()
        self._scheduler.wait_until(lambda: all(server.up for server in self._world.servers), None)
        if self.folder not in oracle.released:
            last = self.start(goal, None)
            last.stays()
            self._scheduler.wait_until(lambda: last.reached or last.process.dead, None)
            last.stop()
            self.wait_for_the_end()
            self.last_error = last.error
            oracle.holds(last.reached, f"the job does not go on: {last.error!r}")
            oracle.holds(self.folder in oracle.released, "the checkpoints are not given up")
        check_released(self._world, self.folder)
        refused = self.start(goal, None)
        self.wait_for_the_end()
        oracle.holds(
            isinstance(refused.error, CheckpointMissingError),
            f"I6: a start after the release ended with {refused.error!r}",
        )
        check_released(self._world, self.folder)

    def _repair_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self.storm(reached)
            if self._is_stopped():
                self._repair()

    def _repair(self) -> None:
        """The operator reads the newest error; the next driver shows what the repair was worth."""
        self._operator.lead_out(
            next(one.error for one in reversed(self._fresh()) if isinstance(one.error, self._stops))
        )
        self._settled = [driver for driver in self._drivers if driver.process.dead]

    def _recorded(self, action: str, withdrawn: set[str]) -> None:
        self._world.happens(f"recorded: {action}")
        self._incident.repaired(withdrawn)

    def _fresh(self) -> list[Driver]:
        """The drivers whose end nobody has repaired."""
        return [driver for driver in self._drivers if driver not in self._settled]

    def _processes(self) -> list[Process]:
        return [one.process for one in self._programs() if not one.process.dead]

    def _programs(self) -> list[Driver | Repair | Tool]:
        return [*self._drivers, *self._operator.repairs, *self._saving.toolbox.tools]

    def _end_all(self) -> None:
        for process in self._processes():
            process.kill()

    def _start_at(self, site: Site, goal: int, mishap: Mishap | None) -> Driver:
        if len(self._drivers) == _MAX_DRIVERS:
            self._world.oracle.violated(f"{_MAX_DRIVERS} drivers did not get the job done")
        self.folder, self.restore_path, self._chosen_at = (
            site.folder,
            site.restore_path,
            site.records,
        )
        driver = self.start(goal, mishap)
        site.drivers.append(driver)
        return driver

    def storm(self, reached: Callable[[], bool]) -> None:
        def over() -> bool:
            return reached() or self._is_stopped()

        while not over():
            if len(self._drivers) == _MAX_DRIVERS:
                self._world.oracle.violated(f"{_MAX_DRIVERS} drivers did not get the job done")
            if not self.living():
                if self.restore_path is not None and isinstance(self._drivers[-1].error, _REFUSALS):
                    # an old driver has gone on meanwhile, or somebody has damaged the folder
                    self._choose_again()
                self._scheduler.sleep(_PATIENCE_S)
                self.start(
                    self._options.checkpoints - 1, self._mishaps.pop() if self._mishaps else None
                )
            elif self._rivals_due:
                self._rivals_due -= 1
                if len(self.living()) < self._options.drivers:
                    self.start(
                        self._options.checkpoints - 1,
                        self._mishaps.pop() if self._mishaps else None,
                    )
            self._scheduler.wait_until(
                lambda: over() or not self.living() or self._rivals_due > 0, None
            )

    def _is_stopped(self) -> bool:
        """Whether the job has found that a decided piece is gone, or that a target
        is not what it was.
        """
        return any(isinstance(driver.error, self._stops) for driver in self._fresh())

    def wait_for_the_end(self) -> None:
        self._scheduler.wait_until(lambda: not self._processes() and not self._late_tasks(), None)

    def living(self) -> list[Driver]:
        return [driver for driver in self._drivers if not driver.process.dead]

    def _late_tasks(self) -> bool:
        return any(not task.dead for one in self._programs() for task in one.executors.processes)

    def start(self, goal: int, mishap: Mishap | None) -> Driver:
        records = (
            self._world.oracle.records.copy() if self.restore_path is None else self._chosen_at
        )
        driver = Driver(
            self._world,
            len(self._drivers),
            self.folder,
            self.restore_path,
            goal,
            records,
            self._failed,
        )
        driver.process.on_death.append(lambda _: self._orphan(driver))
        if mishap is not None:
            self._world.faults.arm(driver.process, mishap)
        self._drivers.append(driver)
        self._scheduler.spawn(driver.process, driver.process.name, driver.run)
        return driver

    def _failed(self, ending: Ending) -> None:
        if self._judges:
            judge(self._world.oracle, ending)

    # -- what befalls drivers ----------------------------------------------------------------------

    def _orphan(self, driver: Driver | Repair) -> None:
        """The workers of a dead driver find out sooner or later."""
        for task in driver.executors.processes:
            if self._world.faults.calm or self._scheduler.random.random() < 0.5:
                task.kill()
            elif not task.dead:
                self._world.faults.arm(task, Mishap.of_latecomer(self._scheduler.random))
                self._scheduler.at(self._scheduler.now_s + _LIVES_ON_S, task.kill)

    def rival(self) -> None:
        self._rivals_due += 1

    def _suspect(self) -> None:
        """Who stands still looks dead."""
        if self._scheduler.random.random() < self._options.suspicion:
            self._rivals_due += 1

    def _stop_one(self) -> None:
        for driver in self.living()[:1]:
            driver.stop()

    def _cut_power(self) -> None:
        """The machine of the drivers goes down. Their servers may not hear of it for a while."""
        if self.restore_path is not None and not self._is_restore_durable():
            return  # the operator would have to think again
        notice_s = self._scheduler.random.choice((0.0, 3.0))
        for driver in self._drivers:
            driver.process.kill(notice_s)
            for task in driver.executors.processes:
                task.kill(notice_s)
        self._world.disk.cut_power()
        self._world.oracle.power_was_cut()

    def end_drivers(self) -> None:
        for driver in self.living():
            driver.process.kill()

    def _decided(self, decision: Decision) -> None:
        self._meddle(decision)
        self._incident.decided(decision)
        if self._change is not None:
            self._change.decided()
        if self._standby is not None:
            self._standby.decided()

    def _meddle(self, decision: Decision) -> None:
        """Somebody resolves a decided branch by hand, soon."""
        if self._options.meddling and decision.xids and not self._meddled:
            self._meddled = True
            xid = self._scheduler.random.choice(decision.xids)
            when_s = self._scheduler.now_s + _MEDDLING_S * self._scheduler.random.random()
            self._scheduler.at(when_s, lambda: self._resolve(decision, xid))

    def _resolve(self, decision: Decision, xid: str) -> None:
        commits = self._options.meddling == "commit"
        if self._world.faults.calm or not decision.durable:
            return
        if any(server.resolve(xid, commits=commits) for server in self._world.servers):
            self._scheduler.trace.append(("somebody", f"{self._options.meddling} {xid}"))
            self._world.oracle.lost += [] if commits else [xid]

    def _move(self) -> None:
        """The operator restores the newest checkpoint, having ended the job; in its own folder
        that can be forgotten.
        """
        if self._is_stopped():
            return
        elsewhere = self._options.restore == "elsewhere"
        if elsewhere or self._scheduler.random.random() < 0.5:
            for driver in self.living():
                driver.process.kill()
        self._choose_restore()
        self.folder = _RESTORED_FOLDER if elsewhere else _FOLDER

    def restore(self, path: str) -> None:
        """From now on drivers are started with the job's option `restore.path`."""
        self.restore_path = path
        self._chosen_at = self._world.oracle.records.copy()

    def _choose_again(self) -> None:
        if self._options.world in WITH_SAVEPOINTS:
            self._saving.refused(self._drivers[-1])
        else:
            self._choose_restore()

    def _choose_restore(self) -> None:
        if self._world.oracle.repaired.damaged:
            self.restore_path = None  # what it names may be gone
        elif self.restore_path not in self._world.oracle.restored:
            newest = max(self._world.oracle.decided.values(), key=lambda decision: decision.chunk)
            self.restore_path = newest.body.removesuffix("/_metadata")
            self._chosen_at = self._world.oracle.records.copy()

    def _is_restore_durable(self) -> bool:
        return any(
            decision.durable
            for decision in self._world.oracle.decided.values()
            if decision.body == f"{self.restore_path}/_metadata"
        )
