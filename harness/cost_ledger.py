"""CPU seconds of each file of tests, measured, and compared with a ledger in the
repository.

    1. measure    the CPU time of the test process and all its descendants, before
                  and after each file
    2. calibrate  a fixed loop runs beside each file: machines get half or twice as fast within
                  minutes, and a file's seconds are scaled to the speed at which the
                  ledger was written
    3. report     each run with `--ledger` prints what grew. Growth fails no run: a
                  machine that is twice as fast at the loop may be as slow as before at
                  what a file does (the model's states are bound by memory)
    4. schedule   the longest files run first, and those that are not in the ledger before the cheap
                  ones, so that no worker is left alone with one at the end

A session fixture (a server, a Spark session) has its own entry, and does not count for the file
that happens to ask first.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.processes import adopt_orphans, reap_orphans, tree_cpu_s

LEDGER = Path(__file__).with_name("cost_ledger.json")
GREW = 1.25
SLACK_S = 15.0
"""Growth below this is noise: the first file that uses a Spark session pays for its
JVM's compilation.
"""
UNKNOWN_S = 200.0
"""The assumed cost of a file that is not in the ledger yet."""
_LOOP = 400_000
_LOOPS = 3
_COSTS = "twophase_costs"
_FIXTURE = "fixture "
_FIXTURE_S = 0.5


@dataclass(frozen=True)
class Cost:
    """The cost of a file or a session fixture.

    Attributes:
        cpu_s: CPU seconds as measured.
        loop_s: CPU seconds of the calibration loop at that time.
    """

    cpu_s: float
    loop_s: float

    def scaled_s(self, loop_s: float) -> float:
        """Return the CPU seconds on a machine whose loop takes `loop_s`."""
        return self.cpu_s * loop_s / self.loop_s

    def with_another(self, other: Cost) -> Cost:
        """Return the sum of both, at the speed of this one."""
        return Cost(self.cpu_s + other.scaled_s(self.loop_s), self.loop_s)


@dataclass
class Ledger:
    """The entries of one kind of run, in CPU seconds.

    Attributes:
        loop_s: the calibration loop when the entries were written.
        entries: by file, or `fixture NAME`.
    """

    loop_s: float
    entries: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, kind: str, path: Path = LEDGER) -> Ledger:
        """Return the entries of `test` or `proof` runs; empty if there are none yet."""
        found = json.loads(path.read_text()) if path.exists() else {}
        return cls(found.get("loop_s", calibrate()), found.get(kind, {}))

    def write(self, kind: str, path: Path = LEDGER) -> None:
        """Replace the entries of one kind."""
        found = json.loads(path.read_text()) if path.exists() else {"loop_s": round(self.loop_s, 4)}
        found[kind] = {name: round(cost, 1) for name, cost in sorted(self.entries.items())}
        path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")

    def growth(self, costs: dict[str, Cost]) -> list[str]:
        """Return a line for each file or fixture that grew, or is new and costs much."""
        lines: list[str] = []
        for name, cost in sorted(costs.items()):
            entry, now_s = self.entries.get(name), cost.scaled_s(self.loop_s)
            if entry is None:
                if now_s > SLACK_S:
                    lines.append(f"{name}: {now_s:.1f} CPU s, not in the ledger yet")
            elif now_s > entry + SLACK_S and now_s > GREW * entry:
                lines.append(f"{name}: {now_s:.1f} CPU s, the ledger says {entry:.1f}")
        return lines


def calibrate() -> float:
    """Return the CPU seconds of the calibration loop: the best of a few, because a neighbour can
    only slow it down.
    """
    return min(_loop_s() for _ in range(_LOOPS))


def _loop_s() -> float:
    began_s = time.thread_time()
    total = 0
    for number in range(_LOOP):
        total += number * number % 7
    return time.thread_time() - began_s


class Meter:
    """Measures in the process that runs tests; a pytest plugin."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self._loop_s = calibrate()
        self._file: str | None = None
        self._began_s = 0.0
        self._fixtures_s = 0.0
        self._in_fixture = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Measure a file from its first test until its last one is torn down."""
        file = file_of(item)
        if file != self._file:
            self._file, self._began_s, self._fixtures_s = file, tree_cpu_s(os.getpid()), 0.0
        result = yield
        if nextitem is None or file_of(nextitem) != file:
            self._note(file, tree_cpu_s(os.getpid()) - self._began_s - self._fixtures_s)
            self._file = None
            reap_orphans()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Make the outermost session fixture a separate entry."""
        if fixturedef.scope != "session" or self._in_fixture:
            return (yield)
        began_s, self._in_fixture = tree_cpu_s(os.getpid()), True
        try:
            return (yield)
        finally:
            spent_s, self._in_fixture = tree_cpu_s(os.getpid()) - began_s, False
            self._fixtures_s += spent_s
            if spent_s > _FIXTURE_S:
                self._note(f"{_FIXTURE}{fixturedef.argname}", spent_s)

    def _note(self, name: str, cpu_s: float) -> None:
        now_s = calibrate()
        cost = Cost(cpu_s, statistics.mean([self._loop_s, now_s]))
        self.costs[name] = self.costs[name].with_another(cost) if name in self.costs else cost
        self._loop_s = now_s

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over the measurements of a pytest-xdist worker."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[_COSTS] = {name: [cost.cpu_s, cost.loop_s] for name, cost in self.costs.items()}


class Report:
    """Collects the measurements of all workers and compares them with the
    ledger; a pytest plugin.
    """

    def __init__(self, kind: str, *, write: bool, own: Meter | None) -> None:
        self._kind = kind
        self._write = write
        self._own = own
        self.costs: dict[str, Cost] = {}
        self._grew: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the measurements of a worker that has ended."""
        for name, measured in getattr(node, "workeroutput", {}).get(_COSTS, {}).items():
            self.take(name, Cost(*measured))

    def take(self, name: str, cost: Cost) -> None:
        """Add what one worker has measured: a file may be split among them, a
        fixture is made in each.
        """
        before = self.costs.get(name)
        if before is None or name.startswith(_FIXTURE):
            self.costs[name] = cost
        else:
            self.costs[name] = before.with_another(cost)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Compare with the ledger, or write it."""
        self.costs |= self._own.costs if self._own else {}
        ledger = Ledger.read(self._kind)
        if self._write:
            ledger.entries |= {
                name: cost.scaled_s(ledger.loop_s) for name, cost in self.costs.items()
            }
            ledger.write(self._kind)
            return
        self._grew = ledger.growth(self.costs)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the sum, and the entries that grew."""
        if not self.costs:
            return
        loop_s = Ledger.read(self._kind).loop_s
        speed = loop_s / statistics.median(cost.loop_s for cost in self.costs.values())
        spent_s = sum(cost.cpu_s for cost in self.costs.values())
        terminalreporter.section("CPU seconds")
        terminalreporter.line(
            f"{spent_s:.0f} in all, {spent_s * speed:.0f} at the speed of the ledger (this "
            f"machine: {speed:.2f} of it)"
        )
        for line in self._grew:
            terminalreporter.line(f"grew: {line}", yellow=True)
        if self._grew:
            terminalreporter.line(
                "Next: find out why; what is worth its cost is recorded with `make ledger`"
            )


def file_of(item: pytest.Item) -> str:
    """Return the file of a test, below the root."""
    return item.nodeid.split("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """See the module."""
    group = parser.getgroup("ledger")
    group.addoption(
        "--ledger", action="store_true", help="Compare CPU seconds with harness/cost_ledger.json."
    )
    group.addoption(
        "--write-ledger", action="store_true", help="Write the CPU seconds of this run into it."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, report where the user looks."""
    write = config.getoption("--write-ledger")
    if not (write or config.getoption("--ledger")):
        return
    distributes = getattr(config.option, "numprocesses", None)
    meter = None if distributes else Meter()
    if meter is not None:
        adopt_orphans()
        config.pluginmanager.register(meter, "twophase-meter")
    if not hasattr(config, "workerinput"):
        kind = "proof" if config.getoption("--proof") else "test"
        config.pluginmanager.register(Report(kind, write=write, own=meter), "twophase-costs")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first."""
    entries = Ledger.read("proof" if config.getoption("--proof") else "test").entries
    items.sort(key=lambda item: -entries.get(file_of(item), UNKNOWN_S))
