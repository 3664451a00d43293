"""Shows the progress of a job: a panel on a terminal, a line for each checkpoint, or nothing.

A view observes the job, prints the lines of others (log, Spark) where they do not disturb it, and
is a context manager around the whole run.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from enum import StrEnum
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from twophase.cli.display.console import INTERRUPT_CHARS, JobConsole
from twophase.cli.display.messages import describe
from twophase.cli.display.panel import progress_panel, summary
from twophase.cli.display.progress import ProgressTracker
from twophase.cli.display.text import clean
from twophase.events import CheckpointCommitted, Event

_REFRESHES_PER_S = 4


class ProgressMode(StrEnum):
    """The values of `--progress`."""

    AUTO = "auto"
    LIVE = "live"
    PLAIN = "plain"
    NONE = "none"


class View(ABC):
    """Shows one job.

    Args:
        job: the job's name.
    """

    def __init__(self, job: str) -> None:
        self.tracker = ProgressTracker()
        self._job = job

    def __call__(self, event: Event) -> None:
        """Observe the job."""
        self.tracker(event)
        self._show(event)

    @abstractmethod
    def print_line(self, text: str) -> None:
        """Show a line of the log or of Spark: on standard error, or above a live panel."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.tracker.set_state("failed")

    @abstractmethod
    def _show(self, event: Event) -> None:
        """Show an event that the tracker has already recorded."""


class SilentView(View):
    """Shows only the lines of others."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self._errors = JobConsole(stderr=True, highlight=False)

    def _show(self, event: Event) -> None:
        """Show nothing."""

    def print_line(self, text: str) -> None:
        """See `View.print_line`."""
        self._errors.print(Text(clean(text)), soft_wrap=True)


class PlainView(SilentView):
    """Prints one line for each checkpoint, and for each event that an operator should know."""

    def __init__(self, job: str, console: Console) -> None:
        super().__init__(job)
        self._console = console

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._print(summary(self.tracker))

    def _show(self, event: Event) -> None:
        text = describe(event, self.tracker.progress)
        if text is not None:
            self._print(text)

    def _print(self, text: str) -> None:
        now = time.strftime("%H:%M:%S")
        self._console.print(
            f"{now} {self._job}: {clean(text)}", soft_wrap=True, markup=False, highlight=False
        )


class LiveView(View):
    """A panel that is redrawn a few times a second; lines to keep are printed above it."""

    def __init__(self, job: str, console: Console) -> None:
        super().__init__(job)
        self._console = console
        self._live = Live(
            console=console,
            get_renderable=self.panel,
            refresh_per_second=_REFRESHES_PER_S,
        )

    def panel(self) -> Panel:
        """Return the panel with the current progress."""
        return progress_panel(self._job, self.tracker, self._console.width - INTERRUPT_CHARS)

    def print_line(self, text: str) -> None:
        """See `View.print_line`."""
        self._console.print(Text(clean(text), style="dim"))

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._live.stop()

    def _show(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            return
        text = describe(event, self.tracker.progress)
        if text is not None:
            self._console.print(Text(f"{time.strftime('%H:%M:%S')} {clean(text)}"))


def make_view(mode: ProgressMode, job: str, console: Console) -> View:
    """Return the view for a mode; `auto` is live on a terminal and plain elsewhere."""
    match mode:
        case ProgressMode.NONE:
            return SilentView(job)
        case ProgressMode.LIVE:
            return LiveView(job, console)
        case ProgressMode.PLAIN:
            return PlainView(job, console)
        case ProgressMode.AUTO:
            return LiveView(job, console) if console.is_terminal else PlainView(job, console)
