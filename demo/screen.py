"""The output of the demo: one line for each event, a bar for the rows, tables at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from demo.figures import Figures
from demo.kills import Kill
from harness.checker import Verdict
from harness.figures import percentile
from harness.three_targets import DELTA, HIVE, MYSQL
from twophase.testing.journal import Entry

Bar = Callable[[int], None]
"""Called with the amount that is done."""

_INDENT = " " * 7
NAMES = {MYSQL: "MySQL", DELTA: "Delta", HIVE: "Hive"}
"""The display names of the sinks."""
_WAITING = {MYSQL: "prepared transaction", DELTA: "staged file", HIVE: "staged file"}


class Screen:
    """The terminal, or a file. Times count from its creation."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._began_s = time.monotonic()
        bar = (TextColumn(_INDENT[1:] + "{task.description}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(
            *bar, console=self.console, transient=True, disable=not self.console.is_terminal
        )

    def line(self, text: str) -> None:
        """Show an event."""
        minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
        self.console.print(f"[dim]{minutes:3d}:{seconds:02d}[/dim] {text}")

    def more(self, text: str) -> None:
        """Add details to the previous line."""
        self.console.print(f"{_INDENT}{text}")

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Bar]:
        """Show a bar while the body runs."""
        task = self._progress.add_task(what, total=total)
        with self._progress:
            yield lambda done: self._progress.update(task, completed=done)
            self._progress.remove_task(task)

    def kill(
        self,
        number: int,
        kill: Kill,
        at: str,
        visible: Mapping[str, int],
        waiting: Mapping[str, int],
    ) -> None:
        """Show that a driver was killed; `at` is the checkpoint that it was working on."""
        where = f" at crash point {kill.point}" if kill.point else ""
        self.line(f"[bold red]KILL {number}[/bold red]  SIGKILL{where}, {at}: {kill.state}.")
        for sink, name in NAMES.items():
            self.more(
                f"{name:<5}  {visible[sink]:>9,} rows visible, "
                f"{_quantity(waiting[sink], _WAITING[sink])}"
            )
        self.more(kill.expected)

    def recovery(self, number: int, fields: Mapping[str, Any], pieces: Sequence[Entry]) -> None:
        """Show that a driver has recovered; `pieces` are those that it has proven
        committed meanwhile.
        """
        proofs = [entry.fields["proof"] for entry in pieces if entry.fields["proof"]]
        found = []
        if fields["recommitted"]:
            found.append(f"{_quantity(len(pieces) - len(proofs), 'decided piece')} committed")
        if proofs:
            found.append(f"{len(proofs)} found committed ({proofs[0]})")
        if fields["aborted"]:
            found.append(f"{_quantity(fields['aborted'], 'undecided piece')} aborted")
        outcome = f"[bold green]recovered[/bold green] in {fields['duration_s']:.2f} s"
        self.line(
            f"driver {number}, generation {fields['generation']}: {outcome}: "
            f"{', '.join(found) or 'nothing was left'}"
        )

    def results(
        self, verdicts: Mapping[str, Verdict], waiting: Mapping[str, int], figures: Figures
    ) -> None:
        """Show the tables at the end."""
        self.console.print()
        compared = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        compared.add_column(style="bold")
        for sink in verdicts:
            compared.add_column(NAMES[sink], justify="right")
        compared.add_column(style="dim")
        for row in _counts(list(verdicts.values()), [waiting[sink] for sink in verdicts]):
            compared.add_row(*row)
        self.console.print(compared)
        self.console.print()
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="dim")
        for row in _times(next(iter(verdicts.values())).produced, figures):
            table.add_row(*row)
        self.console.print(table)


def _counts(verdicts: Sequence[Verdict], waiting: Sequence[int]) -> Iterator[tuple[str, ...]]:
    yield (
        "produced",
        *(f"{one.produced:,}" for one in verdicts),
        "records, read back with a plain consumer",
    )
    yield (
        "rows",
        *(f"{one.stored:,}" for one in verdicts),
        "read back with plain SQL, by Delta's log, from Hive's files",
    )
    yield "lost", *(_good(one.lost) for one in verdicts), "records without a row"
    yield (
        "duplicated",
        *(_good(one.duplicated) for one in verdicts),
        "rows beyond the first of their record",
    )
    yield "foreign", *(_good(one.foreign) for one in verdicts), "rows that are no record"
    yield "left over", *map(_good, waiting), "transactions prepared, files staged"


def _times(rows: int, figures: Figures) -> Iterator[tuple[str, str, str]]:
    share = sum(figures.protocol_s) / max(sum(figures.durations_s), 0.001)
    yield "drivers killed", f"{figures.kills}", "and started again by the supervisor"
    yield (
        "checkpoints",
        f"{figures.decided}",
        f"of {rows // max(figures.decided, 1):,} records or so",
    )
    yield "when warm", f"{percentile(figures.rates, 0.5):,.0f} rows/s", "the median checkpoint"
    yield (
        "while running",
        f"{rows / max(figures.running_s, 0.001):,.0f} rows/s",
        f"{figures.running_s:.1f} s, cold workers after each start included",
    )
    yield (
        "overall",
        f"{rows / figures.overall_s:,.0f} rows/s",
        f"{figures.overall_s:.1f} s, starts of Spark included too",
    )
    yield "a checkpoint", _percentiles(figures.durations_s), "p50 / p95, from trigger to commit"
    yield "the protocol", _milliseconds(figures.protocol_s), f"p50 / p95, its own part: {share:.1%}"


def _quantity(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _good(count: int) -> str:
    return f"[bold {'red' if count else 'green'}]{count:,}[/]"


def _milliseconds(values: Sequence[float]) -> str:
    return f"{percentile(values, 0.5) * 1000:.0f} / {percentile(values, 0.95) * 1000:.0f} ms"


def _percentiles(values: Sequence[float]) -> str:
    return f"{percentile(values, 0.5):.2f} / {percentile(values, 0.95):.2f} s"
