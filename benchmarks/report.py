"""The output of results: printed, and recorded for the documentation.

    python -m benchmarks --record docs/figures kafka_to_mysql --rounds 2

writes `docs/figures/kafka_to_mysql.json`: the command, when and where it ran, and what it measured.
`python docs/generate.py` draws and tabulates what is recorded there.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Ratio:
    """What one run has measured of two things.

    Attributes:
        of: the first of them, such as "twophase, chained".
        to: the second.
        value: the first divided by the second.
        what: was measured, such as "rows/s".
        rounds: the same of each round.
        goal: of the value; None without one.
        at_most: whether the goal is an upper limit.
    """

    of: str
    to: str
    value: float
    what: str
    rounds: Sequence[float] = ()
    goal: float | None = None
    at_most: bool = False

    def __str__(self) -> str:
        said = f"{self.what}, {self.of} / {self.to}: [bold]{self.value:.2f}[/bold]"
        if len(self.rounds) > 1:
            said += f" (by round: {' '.join(f'{ratio:.2f}' for ratio in self.rounds)})"
        if self.goal is None:
            return f"{said}."
        kept = self.value <= self.goal if self.at_most else self.value >= self.goal
        limit = "at most" if self.at_most else "at least"
        return f"{said}; the goal of {limit} {self.goal:g} is {'kept' if kept else 'missed'}."


@dataclass(frozen=True)
class Curve:
    """How a figure grows.

    Attributes:
        of: what was measured, with its unit, such as "MB".
        along: what it grows with, such as "records in a batch".
        points: of both, in the order of the latter.
    """

    of: str
    along: str
    points: Sequence[tuple[float, float]]


@dataclass
class Result:
    """What a benchmark has measured.

    Attributes:
        name: of the benchmark and, if it has several, its variant; of the file that it is recorded
            in.
        tables: as printed.
        ratios: the result.
        curves: likewise, where something grows.
        said: sentences about the rest, such as whether a goal is kept.
        others_cores: how many cores other processes kept busy; None if that was not measured.
    """

    name: str
    tables: list[Table]
    ratios: list[Ratio] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    others_cores: float | None = None

    def show(self) -> None:
        """Print it, and record it if the command says where."""
        for shown in self.tables:
            console.print(shown)
        for line in (*map(str, self.ratios), *self.said):
            console.print(line)
        others = (
            ""
            if self.others_cores is None
            else f"; others kept {self.others_cores:.2f} cores busy meanwhile"
        )
        console.print(f"Machine: {machine.describe()}{others}.", style="dim")
        if _recorded:
            _recorded[-1].mkdir(parents=True, exist_ok=True)
            text = json.dumps(self._record(), indent=1, ensure_ascii=False)
            (_recorded[-1] / f"{self.name}.json").write_text(f"{text}\n")

    def _record(self) -> Mapping[str, Any]:
        return {
            "command": shlex.join(["python", "-m", "benchmarks", *_as_asked(sys.argv[1:])]),
            "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine.describe(),
            "others_cores": self.others_cores,
            "tables": [_cells(shown) for shown in self.tables],
            "ratios": [asdict(ratio) for ratio in self.ratios],
            "curves": [asdict(curve) for curve in self.curves],
            "said": self.said,
        }


def record_in(folder: Path) -> None:
    """Record each result in a folder from now on."""
    _recorded.append(folder)


_recorded: list[Path] = []


def _as_asked(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[2:] if arguments[:1] == ["--record"] else arguments


def _cells(shown: Table) -> Mapping[str, Any]:
    columns = [[*map(str, column.cells)] for column in shown.columns]
    return {
        "title": str(shown.title),
        "columns": [str(column.header) for column in shown.columns],
        "rows": [[*row] for row in zip(*columns, strict=True)],
    }


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
