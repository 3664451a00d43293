"""The output of results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from harness.figures import percentile

_BAR = 40
_STEP = 1.25

console = Console(highlight=False)


def table(title: str, *columns: str) -> Table:
    """Return a table whose first column is text and whose other columns are figures."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made


def foot(others_cores: float | None = None) -> None:
    """Return a description of the machine and its other load."""
    others = (
        "" if others_cores is None else f"; others kept {others_cores:.2f} cores busy meanwhile"
    )
    console.print(f"Machine: {machine.describe()}{others}.", style="dim")


def milliseconds(values_s: Sequence[float]) -> tuple[str, str, str, str]:
    """Return p50, p95, p99 and the maximum of durations, in milliseconds."""
    figures = [
        statistics.median(values_s),
        percentile(values_s, 0.95),
        percentile(values_s, 0.99),
        max(values_s),
    ]
    first, second, third, fourth = (f"{1000 * value:.1f}" for value in figures)
    return first, second, third, fourth


def histogram(title: str, values_s: Sequence[float]) -> None:
    """Return durations in buckets that each start a quarter above the previous one."""
    console.print(title, style="bold")
    low = min(values_s)
    buckets: dict[int, int] = {}
    for value in values_s:
        index = int(math.log(value / low, _STEP))
        buckets[index] = buckets.get(index, 0) + 1
    most = max(buckets.values())
    for index in range(max(buckets) + 1):
        count = buckets.get(index, 0)
        begin_ms, end_ms = 1000 * low * _STEP**index, 1000 * low * _STEP ** (index + 1)
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        console.print(f"  {begin_ms:7.1f} to {end_ms:7.1f} ms {bar} {count or ''}")
