"""A reader of the tables of several jobs with three sinks, while their drivers are killed: what it
sees at any moment.

1. No row is visible twice, and what was visible stays visible.
2. What is in a committed checkpoint is visible, in every table.
3. What is visible is in a decided checkpoint (I1).

Whether a checkpoint is visible as a whole is measured: a part of it is some of its
rows, and not all.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pymysql.connections import Connection

from harness import delta_lake, order_files
from harness.order_files import BATCH
from harness.poller import Poller
from harness.three_targets import DELTA, MYSQL, SINKS, Targets
from integration.three_sinks.scenario import ThreeSinksScenario
from twophase.cli.checkpoint_list import read_checkpoints
from twophase.errors import ConfigError
from twophase.state.journal.log import FOLDER

_EXAMPLES = 3


@dataclass(frozen=True)
class Part:
    """A part of a checkpoint that was visible for a while.

    Attributes:
        job: whose.
        sink: in which table.
        began_s: when the first look that showed it began.
        ended_s: when the first look that showed it no more ended.
    """

    job: str
    sink: str
    began_s: float
    ended_s: float

    def lasted_s(self) -> float:
        """At the most."""
        return self.ended_s - self.began_s

    def after_s(self, starts_s: Iterable[float]) -> float | None:
        """How long it stayed after the start of the next driver; None: the driver that began it
        committed the rest.
        """
        return next(
            (
                self.ended_s - start_s
                for start_s in starts_s
                if self.began_s < start_s < self.ended_s
            ),
            None,
        )


@dataclass(frozen=True)
class Ends:
    """How many of the first orders are in the checkpoints of a job."""

    committed: int
    decided: int


@dataclass(frozen=True)
class Look:
    """What one look at a table has shown.

    Attributes:
        orders: those that were visible, with their repetitions.
        committed: how many were committed before the look.
        decided: how many were decided after the look.
    """

    orders: Sequence[int]
    committed: int
    decided: int

    def wrong(self, before: set[int]) -> list[str]:
        """What a reader must not see, where the look before has shown these."""
        visible = {*self.orders}
        found = {
            "visible twice": [order for order, times in Counter(self.orders).items() if times > 1],
            "visible no more": [*(before - visible)],
            "committed and not visible": [*({*range(self.committed)} - visible)],
            "visible and not decided": [*(visible - {*range(self.decided)})],
        }
        return [
            f"{what}: {len(orders)}, such as {sorted(orders)[:_EXAMPLES]}"
            for what, orders in found.items()
            if orders
        ]


class ThreeReader(Poller):
    """Looks at every table of some jobs again and again.

    Args:
        scenario: the jobs.
        names: of those to look at.

    Attributes:
        looks: by sink, those that showed rows.
        looks_at_parts: by sink, those that showed a part of a checkpoint.
        parts: what these were, when they were over.
        open: since when a part is visible, by job and sink.
        wrong: what must not be seen, by job.
    """

    def __init__(self, scenario: ThreeSinksScenario, names: Sequence[str]) -> None:
        super().__init__()
        self.looks: Counter[str] = Counter()
        self.looks_at_parts: Counter[str] = Counter()
        self.parts: list[Part] = []
        self.open: dict[tuple[str, str], float] = {}
        self.wrong: dict[str, list[str]] = {name: [] for name in names}
        self._scenario = scenario
        self._targets = {name: scenario.targets(name) for name in names}
        self._logs = {name: Log(scenario.location(name)) for name in names}
        self._last = {(name, sink): Look([], 0, 0) for name in names for sink in SINKS}
        self._files: dict[Path, list[int]] = {}
        self._commits: dict[Path, tuple[list[Path], list[Path]]] = {}
        self._mysql: Connection[Any] = next(iter(self._targets.values())).connect()

    def look(self) -> None:
        for name, targets in self._targets.items():
            seen = {sink: self._timed(targets, sink) for sink in SINKS}
            before, ends = self._logs[name].ends, self._logs[name].read()
            for sink, (orders, began_s, ended_s) in seen.items():
                looked = Look(orders, before.committed, ends.decided)
                if looked != self._last[name, sink]:  # most looks show nothing new
                    found = looked.wrong({*self._last[name, sink].orders})
                    self.wrong[name] += (
                        reported
                        for what in found
                        if (reported := f"{sink}: {what}") not in self.wrong[name]
                    )
                    self._last[name, sink] = looked
                self._note(name, sink, began_s, ended_s)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.look()  # at what a kill has left

    def passing(self, sink: str) -> list[float]:
        """How long each part lasted that went by while its driver lived."""
        return [
            part.lasted_s()
            for part in self._of(sink)
            if part.after_s(self._scenario.starts_s) is None
        ]

    def left(self, sink: str) -> list[float]:
        """How long each part that a kill had left stayed after the start of the next driver."""
        return [
            after_s
            for part in self._of(sink)
            if (after_s := part.after_s(self._scenario.starts_s)) is not None
        ]

    def figures(self) -> str:
        """What was measured, for people."""
        lines = [
            f"{'target':8}{'looks':>8}{'at a part':>11}{'parts':>7}{'longest':>9}{'left by a kill':>16}{'longest':>9}"  # noqa: E501
        ]
        for sink in SINKS:
            passing, left = self.passing(sink), self.left(sink)
            lines.append(
                f"{sink:8}{self.looks[sink]:8,}{self.looks_at_parts[sink]:11,}{len(passing):7}"
                f"{1000 * max(passing, default=0):6.0f} "
                f"ms{len(left):16}{max(left, default=0):7.1f} s"
            )
        return "\n".join(lines)

    def _of(self, sink: str) -> list[Part]:
        return [part for part in self.parts if part.sink == sink]

    def _timed(self, targets: Targets, sink: str) -> tuple[list[int], float, float]:
        began_s = time.monotonic()
        orders = self._orders(targets, sink)
        return orders, began_s, time.monotonic()

    def _orders(self, targets: Targets, sink: str) -> list[int]:
        """The numbers of all orders that a table shows, with repetitions."""
        if sink == MYSQL:
            with self._mysql.cursor() as cursor:
                cursor.execute(f"SELECT JSON_ARRAYAGG(id) FROM {targets.job}")
                [(numbers,)] = cursor.fetchall()
                return list(json.loads(numbers or "[]"))
        files = (
            self._live_files(targets.delta)
            if sink == DELTA
            else [*order_files.visible(targets.hive)]
        )
        return [number for file in files for number in self._read(file)]

    def _live_files(self, table: Path) -> list[Path]:
        """The data files that a Delta table names, read again when there is another commit."""
        commits = delta_lake.commits(table)
        if commits != self._commits.get(table, ([], []))[0]:
            self._commits[table] = commits, [table / name for name in delta_lake.live_files(table)]
        return self._commits[table][1] if commits else []

    def _read(self, file: Path) -> list[int]:
        """The orders in a file; each is read once, because none is ever changed."""
        if file not in self._files:
            column = pq.read_table(file, columns=["id"], partitioning=None)["id"]
            self._files[file] = [int(number) for number in column.to_pylist()]
        return self._files[file]

    def _note(self, name: str, sink: str, began_s: float, ended_s: float) -> None:
        visible = len({*self._last[name, sink].orders})
        self.looks[sink] += visible > 0
        if visible % BATCH:
            self.looks_at_parts[sink] += 1
            self.open.setdefault((name, sink), began_s)
        elif (name, sink) in self.open:
            self.parts.append(Part(name, sink, self.open.pop((name, sink)), ended_s))


class Log:
    """The log of a job, read again when it has changed: its records never do.

    Args:
        location: the folder of the job; it need not be there yet.

    Attributes:
        ends: what it said when it was read.
    """

    def __init__(self, location: str) -> None:
        self.ends = Ends(0, 0)
        self._location = Path(location)
        self._names: list[str] = []

    def read(self) -> Ends:
        """What it says now."""
        names = sorted(path.name for path in (self._location / FOLDER).glob("*"))
        if names != self._names:
            self._names, self.ends = names, ends_of(str(self._location))
        return self.ends


def ends_of(location: str) -> Ends:
    """What a job has committed and decided, by its log; nothing if it is none. Checkpoints have
    whole micro-batches.
    """
    committed = decided = 0
    with suppress(ConfigError):
        for entry in read_checkpoints(location).entries:
            if entry.body is not None:
                [line] = entry.body.offsets.end
                decided = BATCH * (1 + json.loads(line)["logOffset"]) if line else decided
                committed = decided if entry.decision.committed else committed
    return Ends(committed, decided)
