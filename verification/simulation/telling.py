"""What the drivers of a run tell their observers, in one order, with what no driver can tell of
itself: its start, its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from twophase.events import Event, Observer
from verification.simulation.scheduler import Process


@dataclass(frozen=True)
class Started(Event):
    """A coordinator begins, in a process that is new or has restarted its query.

    Attributes:
        folder: of the job.
        sinks: their names, in the order of the job.
        restores: whether it restores a checkpoint explicitly.
        savepoint: of a savepoint that it restores: the number of its checkpoint, that of the
            first checkpoint which follows, and of each that it has yet to commit.
        restored: the path of what it restores.
    """

    folder: str
    sinks: tuple[str, ...]
    restores: bool
    savepoint: tuple[int, int, tuple[int, ...]] | None = None
    restored: str = ""


@dataclass(frozen=True)
class Ended(Event):
    """It is over: it tells nothing more, whatever it was about to tell."""


class Telling:
    """Collects reported events.

    Attributes:
        trace: (number of the coordinator in the order of their starts from 1, event).
    """

    def __init__(self) -> None:
        self.trace: list[tuple[int, Event]] = []
        self._started = 0
        self._current: dict[Process, tuple[int, str]] = {}

    def begin(self, process: Process, started: Started) -> Observer:
        """A coordinator begins; the one that the process had before is over. Returns who
        hears of its events.
        """
        self._end(process)
        self._started += 1
        number = self._started
        self._current[process] = (number, started.job)
        process.on_death.append(lambda _: self._end(process))
        self.trace.append((number, started))

        def tell(event: Event) -> None:
            if not process.dead:
                self.trace.append((number, event))

        return tell

    def _end(self, process: Process) -> None:
        if process in self._current:
            number, job = self._current.pop(process)
            self.trace.append((number, Ended(job)))
