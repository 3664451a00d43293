"""The views of `--progress`: a panel on a terminal, a line for each checkpoint, or nothing.

A view observes the job, prints the lines of others (log, Spark) where they do not disturb it, and
is a context manager around the whole run.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from twophase.cli.display.console import INTERRUPT_CHARS, JobConsole
from twophase.cli.display.sentences import describe
from twophase.cli.display.text import clean, count, duration, rows_by_sink, time_now
from twophase.engine.progress import Progress, ProgressTracker
from twophase.events import CheckpointCommitted, Event

_STATE_STYLES = {
    "running": "green",
    "failed": "bold red",
    "restarting": "yellow",
    "recovering": "yellow",
}
_ERROR_CHARS = 400
_NONE = "-"
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

    Attributes:
        tracker: of its progress.
        log_formatter: makes lines of log records; None for text.
    """

    def __init__(self, job: str) -> None:
        self.log_formatter: logging.Formatter | None = None
        self.tracker = ProgressTracker()
        self.tracker.set_state("starting Spark")
        self._job = job

    def __call__(self, event: Event) -> None:
        """Observe the job."""
        self.tracker(event)
        self._show(event)

    @abstractmethod
    def print_line(self, text: str) -> None:
        """Show a line of the log or of Spark: on standard error, or above a live panel."""

    def print_log(self, line: str) -> None:
        """Show a line of the log, as `log_formatter` has made it."""
        self.print_line(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):  # not a signal
            self.tracker.set_state("failed")
        self._close()

    @abstractmethod
    def _close(self) -> None:
        """Show how the run has ended."""

    @abstractmethod
    def _show(self, event: Event) -> None:
        """Show an event that the tracker has already recorded."""


class SilentView(View):
    """Shows only the lines of others."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self._errors = JobConsole(stderr=True)

    def _show(self, event: Event) -> None:
        """Show nothing."""

    def _close(self) -> None:
        """Show nothing."""

    def print_line(self, text: str) -> None:
        """See `View.print_line`."""
        self._errors.print(Text(clean(text)), soft_wrap=True)


class PlainView(SilentView):
    """Prints one line for each checkpoint, and for each event that an operator should know."""

    def __init__(self, job: str, console: Console) -> None:
        super().__init__(job)
        self._console = console

    def _close(self) -> None:
        self._print(summary(self.tracker))

    def _show(self, event: Event) -> None:
        text = describe(event, self.tracker.progress)
        if text is not None:
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(Text(f"{time_now()} {self._job}: {clean(text)}"), soft_wrap=True)


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

    def _close(self) -> None:
        self._live.stop()

    def _show(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            return
        text = describe(event, self.tracker.progress)
        if text is not None:
            self._console.print(Text(f"{time_now()} {clean(text)}"))


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


def progress_panel(job: str, tracker: ProgressTracker, width: int) -> Panel:
    """Return the panel with the job's current progress.

    Args:
        job: the job's name.
        tracker: the job's progress.
        width: in columns, fewer than the terminal has: the echo of Ctrl-C comes after the last
            line, and if that wrapped, the panel would be drawn a line too low from then on.
    """
    now, now_s = tracker.progress, time.monotonic()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(now, now_s):
        table.add_row(name, value)
    title = Text.assemble(
        (clean(job), "bold"),
        "  ",
        (now.state, _STATE_STYLES.get(now.state, "")),
        f"  {duration(now_s - tracker.started_s)}",
    )
    return Panel(table, title=title, title_align="left", border_style="dim", width=width)


def _rows(now: Progress, now_s: float) -> list[tuple[str, Text]]:
    rate = "" if now.query.rate is None else f"   {now.query.rate:,.0f} a second"
    lag = _NONE if now.query.lag is None else f"{now.query.lag:,} records"
    failures = f"{now.restarts:,}" + (
        f"   {count(now.declined, 'declined attempt')}" if now.declined else ""
    )
    rows = [
        ("records in", Text(f"{now.query.records:,}{rate}")),
        ("lag", Text(lag)),
        ("last checkpoint", Text(_last(now, now_s))),
        ("now", Text(_current(now, now_s))),
        ("pending commits", Text(_pending(now), style="yellow" if len(now.pending) > 1 else "")),
        ("restarts", Text(failures)),
    ]
    if now.last_error:
        rows.append(("last error", Text(clean(now.last_error)[:_ERROR_CHARS], style="red")))
    return rows


def _last(now: Progress, now_s: float) -> str:
    if now.last is None:
        return _NONE
    took = f"took {duration(now.last.duration_s)} (protocol {duration(now.last.protocol_s)})"
    rows = rows_by_sink(now.last.rows, now.last.rows_by_sink)
    return f"{now.last.checkpoint}   {duration(now_s - now.last_s)} ago   {took}   {rows}"


def _current(now: Progress, now_s: float) -> str:
    if now.current is None:
        return _waits_for(now)
    phase = "commit" if now.current in now.pending else "pre-commit"
    if not now.has_workers:
        phase += ", Spark's Python workers are starting"
    return f"{now.current}   {phase}   {duration(now_s - now.current_s)}"


def _waits_for(now: Progress) -> str:
    """Return what a job waits for before its first checkpoint is in progress."""
    if now.state == "recovering":
        return "earlier checkpoints are being committed or aborted"
    if now.state == "running" and not now.committed and not now.has_workers:
        return "Spark is planning the first micro-batch"
    return _NONE


def _pending(now: Progress) -> str:
    numbers = ", ".join(str(number) for number in sorted(now.pending))
    return f"{len(now.pending)}   checkpoint {numbers}" if numbers else "0"


def summary(tracker: ProgressTracker) -> str:
    """Return one sentence that sums up a run."""
    now = tracker.progress
    return (
        f"{now.state} after {duration(time.monotonic() - tracker.started_s)}: "
        f"{count(now.committed, 'checkpoint')}, {count(now.query.records, 'record')} in, "
        f"{rows_by_sink(now.rows, now.rows_by_sink, 'committed')}, "
        f"{count(now.restarts, 'restart')}"
    )
