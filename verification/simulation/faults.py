"""What goes wrong in a run, and when: all of it is drawn from the seed, and bounded.

Nothing goes wrong any more once `calm` is set: then the job has to come to its end.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from verification.simulation.client import Broken, NetworkFault
from verification.simulation.files import DiskFault
from verification.simulation.options import Mishap, Options
from verification.simulation.scheduler import Process, Scheduler
from verification.simulation.server import Server

_NO_SPACE, _NO_FOLDER_ENTRY, _BROKEN_DISK = errno.ENOSPC, errno.EMLINK, errno.EIO
_DISK_CODES = {
    "space": (_NO_SPACE, _BROKEN_DISK),
    "write": (0, _NO_SPACE, _BROKEN_DISK),  # 0: fewer bytes than asked for, no error
    "sync": (_BROKEN_DISK,),
    "link": (_NO_SPACE, _NO_FOLDER_ENTRY, _BROKEN_DISK, _BROKEN_DISK),
    "read": (_BROKEN_DISK,),
}
_REFUSALS = {
    "XA COMMIT": (1290, 1205, 1317),
    "XA ROLLBA": (1290, 1317),
    "LOAD DATA": (1205, 1213),
    "XA PREPAR": (1114,),
}
_WEIGHTS = {"XA ": 5, "link": 5, "sync": 2}  # where it hurts
_DOWNTIME_S = 0.5


class Faults:
    """Decides.

    Args:
        options: how much of what.
        random: makes the choices.
        scheduler: the time.

    Attributes:
        calm: nothing goes wrong any more.
        points: how often each crash point was reached.
        on_stall: called when a process stands still; somebody may take it for dead.
    """

    def __init__(self, options: Options, random: Random, scheduler: Scheduler) -> None:
        self.calm = False
        self.points: Counter[str] = Counter()
        self.on_stall: Callable[[], None] = lambda: None
        self._random = random
        self._scheduler = scheduler
        self._rates = {"disk": options.disk_rate, "network": options.network_rate}
        self._left = {"disk": options.disk_budget, "network": options.network_budget}
        self._armed: dict[Process, Any] = {}
        self._planned: list[tuple[int, Callable[[], None]]] = []
        scheduler.on_step = self._on_step

    # -- mishaps -----------------------------------------------------------------------------------

    def arm(self, process: Process, mishap: Mishap) -> None:
        """Let something befall a process."""
        self._armed[process] = [mishap, mishap.count]

    def failpoint(self, name: str) -> None:
        """Stands for `twophase.internals.failpoints.failpoint`."""
        if name:
            self.points[name] += 1
            self._scheduler.step(name, 0.0)

    def _on_step(self, process: Process, what: str) -> float:
        """Returns how long the process stands still."""
        while self._planned and self._planned[0][0] <= self._scheduler.steps:
            _, action = self._planned.pop(0)
            if not self.calm:
                action()
        pause_s = 0.0
        for victim in (process,) if process.parent is None else (process, process.parent):
            armed = self._armed.get(victim)
            if armed is None or self.calm or armed[0].place not in what:
                continue
            armed[1] -= 1
            if not armed[1]:
                del self._armed[victim]
                pause_s = armed[0].pause_s
                if not pause_s:
                    victim.kill()
                elif victim is process:
                    self.on_stall()
        return pause_s

    # -- what happens to everybody -----------------------------------------------------------------

    def plan(self, times: int, within_steps: int, action: Callable[[], None]) -> None:
        """Do `action` so many times, at any step of the first so many."""
        moments = [self._random.randint(1, within_steps) for _ in range(times)]
        self._planned = sorted(
            [*self._planned, *((moment, action) for moment in moments)], key=lambda entry: entry[0]
        )

    def crash(self, server: Server) -> None:
        """A server dies and comes back."""
        if server.up:
            server.crash()
            back_s = self._scheduler.now_s + _DOWNTIME_S * self._random.random()
            self._scheduler.at(back_s, lambda: setattr(server, "up", True))

    # -- single calls ------------------------------------------------------------------------------

    def of_disk(self, kind: str) -> DiskFault | None:
        """What is wrong with a call of the file system."""
        if not self._strikes("disk", _WEIGHTS.get(kind, 1)):
            return None
        code = self._random.choice(_DISK_CODES[kind])
        # An error that leaves doubt may come although the work is done: a lost reply.
        return DiskFault(
            code,
            done=code == _BROKEN_DISK and kind in ("link", "sync") and self._random.random() < 0.5,
        )

    def of_network(self, server: Server, sql: str) -> NetworkFault | None:
        """What is wrong with a statement, or with a connection attempt."""
        if not self._strikes("network", _WEIGHTS.get(sql[:3], 1)):
            return None
        if not sql:
            return NetworkFault(code=self._random.choice((2003, 1040)))
        codes = _REFUSALS.get(sql[:9])
        if codes is not None and self._random.random() < 0.4:
            return NetworkFault(code=self._random.choice(codes))
        notice_s = self._random.choice((0.0, 0.0, 0.01, 3.0))
        return NetworkFault(self._random.choice((Broken.BEFORE, Broken.AFTER)), notice_s=notice_s)

    def _strikes(self, what: str, weight: int) -> bool:
        if self.calm or not self._left[what] or self._random.random() >= self._rates[what] * weight:
            return False
        self._left[what] -= 1
        return True
