"""Runs one seed: has drivers started, lets things go wrong, brings the job to its end, and judges
what is there then.
"""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import partial

from twophase.errors import ConfigError, StopJobError
from twophase.events import Event
from verification.simulation.commands import Shell
from verification.simulation.decisions import Decision
from verification.simulation.driver import Driver
from verification.simulation.drivers import LOSSES, Drivers
from verification.simulation.ending import DriverEnding
from verification.simulation.incidents import incident
from verification.simulation.operators import Operator
from verification.simulation.options import Mishap, Options
from verification.simulation.scheduler import Process
from verification.simulation.standby import Site, Standby
from verification.simulation.target_change import TargetChange
from verification.simulation.verdict import (
    check_end,
    check_lost,
    check_refused,
    judge,
    judge_command,
)
from verification.simulation.world import World
from verification.simulation.worlds import (
    COPIED,
    OPERATED,
    RESTORED_TARGET,
    SWAPPED,
)

_FOLDER, _RESTORED_FOLDER = "/data/job", "/data/restored"
_STORM_STEPS = 1500
_PATIENCE_S = 0.1
_MEDDLING_S = 0.05


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
        supervisor.drivers.last_error,
        world.oracle.limit,
    )


class Supervisor:
    """Lets things happen to one run, and judges it.

    Args:
        world: where.

    Attributes:
        drivers: those of the job.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._oracle = world.oracle
        self._scheduler = world.scheduler
        self._options = options = world.options
        self._meddled = False
        self._judges = True
        self.drivers = Drivers(world, _FOLDER, self._failed)
        shell = Shell(world, lambda ending: judge_command(world.oracle, ending))
        shell.on_death = self.drivers.orphan
        self._operator = Operator(world, self.drivers, shell, self._calm_down)
        self.drivers.commands = lambda: shell.commands
        if options.world == OPERATED:
            self.drivers.stops = (ConfigError, StopJobError)
            self.drivers.choose_again = lambda: None
        self._change = (
            TargetChange(world, self.drivers.end)
            if options.world in (RESTORED_TARGET, SWAPPED)
            else None
        )
        living, end_all = self.drivers.processes, self.drivers.end_all
        self._incident = incident(world, living, end_all, shell.start)
        shell.dies_at_record = self._incident.kills_at_record
        world.oracle.on_decided = self._decided
        world.oracle.on_repaired = self._recorded
        self._standby = Standby(world, _FOLDER) if options.world == COPIED else None
        plan = world.faults.plan
        plan(options.rivals, _STORM_STEPS, self.drivers.rival)
        plan(options.power_cuts, _STORM_STEPS, self._cut_power)
        plan(options.stops, _STORM_STEPS, self._stop_one)
        for server in world.servers:
            plan(options.server_crashes, _STORM_STEPS, partial(world.faults.crash, server))

    def work(self) -> None:
        """The storm: until all chunks but the last are written. Then the calm: one more driver,
        alone, writes the last.
        """
        if self._standby is not None:
            self._work_in_two_folders(Site(_FOLDER), self._standby.site)
        elif self._options.world == OPERATED:
            self._operator.work()
            check_end(self._world, self.drivers.folder)
        else:
            self._work()

    def _work(self) -> None:
        drivers, options = self.drivers, self._options
        if options.restore:
            drivers.storm(lambda: len(self._oracle.decided) >= options.checkpoints // 2)
            self._move()
        drivers.storm(drivers.has_reached)
        drivers.calm_down()
        if self._change is not None:
            self._change.over = True
            self._end_after_a_change()
            return
        if drivers.is_stopped():
            check_lost(self._world)
            return
        if options.restore == "here" and not drivers.is_restored():
            drivers.restore_path = None  # the old driver has never been ended, and did it all
        last = drivers.start_last(options.checkpoints)
        # it was the first that had to commit that piece; `judge` has seen its error
        if drivers.is_stopped():
            check_lost(self._world)
            return
        self._goes_on(last)
        check_end(self._world, drivers.folder)
        if options.emptied:
            drivers.folder, drivers.restore_path = "/data/emptied", None
            self._judges = False
            refused = drivers.start_last(options.checkpoints)
            check_refused(self._world, drivers.folder, refused.error)

    def _end_after_a_change(self) -> None:
        """One more driver: it goes on exactly if nothing is missing; otherwise it has to say so."""
        oracle, last = self._oracle, self.drivers.start_last(self._options.checkpoints)
        if last.reached:
            oracle.holds(
                not oracle.missing(),
                f"I8: the job goes on, and {sorted(oracle.missing())} are missing",
            )
            check_end(self._world, self.drivers.folder)
            return
        oracle.holds(isinstance(last.error, LOSSES), f"the job does not go on: {last.error!r}")
        self._world.happens(f"stopped: {type(last.error).__name__}")
        check_lost(self._world)

    def _work_in_two_folders(self, *sites: Site) -> None:
        """Until a driver over one of the folders has written all chunks but the last, or none may
        be started any more.
        """
        drivers, goal = self.drivers, self._options.checkpoints

        def over() -> bool:
            return drivers.has_reached() or all(site.is_stopped() for site in sites if site.due)

        while not over():
            for site in [site for site in sites if site.needs_driver()]:
                if site.drivers:
                    self._scheduler.sleep(_PATIENCE_S)
                self._start_at(site, goal - 1, drivers.next_mishap())
            self._scheduler.wait_until(
                lambda: over() or any(site.needs_driver() for site in sites), None
            )
        drivers.calm_down()
        if left := [site for site in sites if site.drivers and not site.is_stopped()]:
            newest = max(left, key=lambda site: self._oracle.generation.get(site.folder, 0))
            last = self._start_at(newest, goal, None)
            drivers.wait_for_the_end()
            if last.reached:
                self._world.happens(
                    "goes on in the copy" if newest is not sites[0] else "goes on in the original"
                )
                return check_end(self._world, newest.folder)
            self._oracle.holds(newest.is_stopped(), f"the job does not go on: {last.error!r}")
        self._world.happens("stopped in both folders")
        return check_lost(self._world)

    def _start_at(self, site: Site, goal: int, mishap: Mishap | None) -> Driver:
        self.drivers.folder = site.folder
        self.drivers.restore(site.restore_path, site.records)
        driver = self.drivers.start(goal, mishap)
        site.drivers.append(driver)
        return driver

    def _calm_down(self) -> None:
        self._world.faults.calm = True
        self._incident.end()
        self.drivers.calm_down()

    def _recorded(self, action: str, withdrawn: set[str]) -> None:
        self._world.happens(f"recorded: {action}")
        self._operator.recorded(withdrawn)
        self._incident.repaired(withdrawn)

    def _goes_on(self, last: Driver) -> None:
        self._oracle.holds(last.reached, f"the job does not go on: {last.error!r}")

    def _failed(self, ending: DriverEnding) -> None:
        if self._judges:
            judge(self._oracle, ending)

    # -- what befalls drivers ----------------------------------------------------------------------

    def _stop_one(self) -> None:
        for driver in self.drivers.living()[:1]:
            driver.stop()

    def _cut_power(self) -> None:
        """The machine of the drivers goes down. Their servers may not hear of it for a while."""
        if self.drivers.restore_path is not None and not self.drivers.is_restore_durable():
            return  # the operator would have to think again
        self.drivers.cut_power(self._scheduler.random.choice((0.0, 3.0)))
        self._world.disk.cut_power()
        self._oracle.power_was_cut()

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
            self._oracle.lost += [] if commits else [xid]

    def _move(self) -> None:
        """The operator restores the newest checkpoint, having ended the job; in its own folder
        that can be forgotten.
        """
        if self.drivers.is_stopped():
            return
        elsewhere = self._options.restore == "elsewhere"
        if elsewhere or self._scheduler.random.random() < 0.5:
            self.drivers.end()
        self.drivers.restore_newest()
        self.drivers.folder = _RESTORED_FOLDER if elsewhere else _FOLDER
