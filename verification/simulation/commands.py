"""The commands of operators, `twophase savepoint` and `twophase repair`, and another job that
begins with a savepoint: each a process that may be killed or stand still, beside drivers that live.

What each does is real: `savepoints`, `repairs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verification.simulation.ending import ACCEPT, FORK, Command, CommandEnding
from verification.simulation.options import Mishap
from verification.simulation.repairs import ABANDON, ADOPT, REPAIRS, REWRITE
from verification.simulation.running import Running
from verification.simulation.savepoints import DISPOSE, FINISH, MAKE, SAVEPOINTS

if TYPE_CHECKING:
    from verification.simulation.world import World

_OF_COMMITS = ("C11", "C12", "C13", "C14", "C15", "C19")
_OF_REPAIRS = ("R01", "R02", "R03", "R04", "R05", *_OF_COMMITS)
_POINTS = {
    MAKE: ("S01", "S02", "S03", "S04"),
    FINISH: ("C11", "C12", "C15", "C19", "C20", "S08"),
    DISPOSE: ("S09", "S10"),
    FORK: ("C11", "C12", "C15", "C18", "C22", "S05", "S06", "S07"),
    ACCEPT: _OF_REPAIRS,
    REWRITE: _OF_REPAIRS,
    ADOPT: _OF_REPAIRS,
    ABANDON: ("R01", "R02", "R03", "R06"),
}
_PLACES = (
    *("disk link", "disk sync", "XA PREPARE", "XA COMMIT", "XA ROLLBACK", "XA RECOVER"),
    *("twophase_", ""),
)
_PAUSES_S = (0.0, 0.0, 0.0, 0.3, 3.0)
_MISHAPS, _AT_A_POINT = 0.5, 0.6
_MOST_WITH_MISHAPS = 10


class Shell:
    """Runs commands.

    Args:
        world: where.
        judge: hears of each failure.

    Attributes:
        commands: those that were run.
        on_death: hears of each that is over.
        dies_at_record: whether the first repair dies right after its record.
    """

    def __init__(self, world: World, judge: Callable[[CommandEnding], None]) -> None:
        self.commands: list[Running] = []
        self.on_death: Callable[[Running], None] = lambda command: None
        self.dies_at_record = False
        self._world = world
        self._judge = judge

    def start(self, command: Command) -> Running:
        """Start a command, whoever lives."""
        world, kind = self._world, "repair" if command.verb in REPAIRS else "savepoint"
        act = (SAVEPOINTS | REPAIRS)[command.verb]
        running = Running(world, f"{kind}{len(self.commands)}", command, act, self._judge)
        world.happens(f"{kind}: {command.verb}")
        running.process.on_death.append(lambda _: self.on_death(running))
        if (mishap := self._mishap(command.verb)) is not None:
            world.faults.arm(running.process, mishap)
        self.commands.append(running)
        world.scheduler.spawn(running.process, running.process.name, running.run)
        return running

    def run(self, command: Command) -> Running:
        """Run a command to its end, or its death."""
        running = self.start(command)
        self._world.scheduler.wait_until(lambda: running.process.dead, None)
        return running

    def _mishap(self, verb: str) -> Mishap | None:
        """What befalls a command."""
        world, random = self._world, self._world.scheduler.random
        if self.dies_at_record and verb in REPAIRS:
            self.dies_at_record = False
            return Mishap("R03", 1, 0.0)
        if world.faults.calm or len(self.commands) >= _MOST_WITH_MISHAPS:
            return None
        if random.random() >= _MISHAPS:
            return None
        at_a_point = verb in SAVEPOINTS or random.random() < _AT_A_POINT
        place = random.choice(_POINTS[verb] if at_a_point else _PLACES)
        return Mishap(place, random.randint(1, 2 if place else 40), random.choice(_PAUSES_S))
