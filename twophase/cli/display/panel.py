"""The live panel and the last line of a run."""

from __future__ import annotations

import time

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from twophase.cli.display.progress import Progress
from twophase.cli.display.progress_tracker import ProgressTracker
from twophase.cli.display.text import clean, count, duration, rows_by_sink

_STATE_STYLES = {
    "running": "green",
    "failed": "bold red",
    "restarting": "yellow",
    "recovering": "yellow",
}
_ERROR_CHARS = 400
_NONE = "-"


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
