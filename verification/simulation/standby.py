"""A second driver over a copy of the job's folder, beside the one over the original."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from verification.simulation.moments import DELAYS_S, Moment

if TYPE_CHECKING:
    from verification.simulation.driver import Driver
    from verification.simulation.world import World

COPY, BESIDE = "/data/copy", "/data/beside"


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
        self._copied = Moment(random, random.randint(1, options.checkpoints - 2))
        self._waits_s = random.choice((0.0, *DELAYS_S)) * random.random()
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
