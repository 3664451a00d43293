"""Shows the steps that are running on standard error: one live line of all of them on a terminal,
elsewhere one plain line for each that is done.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Console
from rich.status import Status
from rich.text import Text

_PLAIN_INTERVAL_S = 30.0
_SPINNER_WIDTH = 3
_numbers = itertools.count()


@dataclass(frozen=True)
class Step:
    """One step as it is now.

    Attributes:
        process: the id of the process that runs it.
        number: tells it apart from other steps of that process.
        title: what it does.
        begun_s: on the monotonic clock.
        announced: a plain line says that it has begun.
        message: what is being done right now.
        is_over: it has ended.
        took_s: how long it took; None while it runs, and if it failed.
    """

    process: int
    number: int
    title: str
    begun_s: float
    announced: bool = False
    message: str = ""
    is_over: bool = False
    took_s: float | None = None

    @property
    def line(self) -> str:
        """What it is doing."""
        return f"{self.title}: {self.message}" if self.message else f"{self.title} ..."


class Screen:
    """Standard error, for the steps of this process and of those that report to it."""

    def __init__(self) -> None:
        self._console = Console(
            stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False
        )
        self._running: dict[tuple[int, int], Step] = {}
        self._status: Status | None = None
        self._printed_s: dict[tuple[int, int], float] = {}

    def show(self, step: Step) -> None:
        """Show the new state of a step."""
        key = (step.process, step.number)
        is_new = key not in self._running
        self._running[key] = step
        if step.is_over:
            del self._running[key]
            self._printed_s.pop(key, None)
        if self._console.is_terminal:
            self._refresh()
        elif not step.is_over:
            self._show_plainly(key, step, is_new)
        if step.took_s is not None:
            self._print(f"{step.title}: done in {step.took_s:.1f} s")

    def forget(self, process: int) -> None:
        """Show the steps of a process no longer: it has ended."""
        for step in list(self._running.values()):
            if step.process == process:
                self.show(replace(step, is_over=True))

    def _show_plainly(self, key: tuple[int, int], step: Step, is_new: bool) -> None:
        """Print few lines of a step that takes long, because a CI log keeps every line."""
        now_s = time.monotonic()
        is_due = now_s - self._printed_s.setdefault(key, step.begun_s) >= _PLAIN_INTERVAL_S
        if (is_new and step.announced) or is_due:
            self._printed_s[key] = now_s
            self._print(step.line)

    def _refresh(self) -> None:
        """Update the live line, which is there while a step is running."""
        if not self._running:
            if self._status is not None:
                self._status.stop()
            self._status = None
            return
        line = Text(" · ".join(step.line for step in self._running.values()))
        line.truncate(max(self._console.width - _SPINNER_WIDTH, 1), overflow="ellipsis")
        if self._status is None:
            self._status = self._console.status(line)
            self._status.start()
        else:
            self._status.update(line)

    def _print(self, line: str) -> None:
        self._console.print(line)


SCREEN = Screen()
_show: Callable[[Step], None] = SCREEN.show


def report_to(show: Callable[[Step], None]) -> None:
    """Have the steps of this process shown by another function than `SCREEN.show`."""
    global _show
    _show = show


class Progress:
    """Reports the progress of one step."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def update(self, message: str) -> None:
        """Show what is being done right now."""
        self.step = replace(self.step, message=message)
        _show(self.step)


@contextmanager
def show_progress(title: str, *, announced: bool = False) -> Iterator[Progress]:
    """Show one step from start to end, with the time it took. One that fails just disappears.

    Args:
        title: what it does.
        announced: say also in plain lines that it has begun: others decide when it ends.
    """
    begun_s = time.monotonic()
    progress = Progress(Step(os.getpid(), next(_numbers), title, begun_s, announced))
    took_s = None
    _show(progress.step)
    try:
        yield progress
        took_s = time.monotonic() - begun_s
    finally:
        _show(replace(progress.step, is_over=True, took_s=took_s))
