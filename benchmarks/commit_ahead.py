"""What `checkpoint.mode` at_least_once gives and costs: when the rows of the faster of two sinks
are visible, and what is written for it.

Two sinks of files, without Spark; the second one takes a given time longer to pre-commit. Both
modes alternate in one run, over folders of their own. Visible is when the sink has proven its
pieces committed, since the trigger. Records are those of the job's log, fsyncs all of the process.

    python -m benchmarks commit_ahead --checkpoints 40 --slower-ms 300 --rounds 3
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import click
import pyarrow as pa

from benchmarks.report import Ratio, Result, milliseconds, table
from harness.memory_host import InThisProcess, MemoryHost
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine.engine import Engine
from twophase.engine.host import Handle, Plan
from twophase.events import CheckpointTriggered, Event, Observers, PieceCommitted
from twophase.options.job_options import JobOptions
from twophase.sinks.file.sink import FileSink
from twophase.state.journal.log import FOLDER
from twophase.testing.plain_host import Done, ListedRows, PlainFolder, PlainQuery, Task

_JOB, _FASTER, _SLOWER = "commit-ahead", "faster", "slower"
_SCHEMA = pa.schema([("id", pa.int64())])
_ROWS = 1_000
_MODES = ("at_least_once", "exactly_once")


@dataclass
class Measured:
    """What was measured of one mode.

    Attributes:
        visible_s: seconds from each trigger until a sink's rows are visible, by its name.
        records: records of the log.
        fsyncs: calls of `os.fsync`.
        checkpoints: how many there were.
    """

    visible_s: dict[str, list[float]] = field(default_factory=lambda: {_FASTER: [], _SLOWER: []})
    records: int = 0
    fsyncs: int = 0
    checkpoints: int = 0
    _triggered_s: float = 0.0

    def observe(self, event: Event) -> None:
        """Hear of an event of the job; a sink that is asked again is visible already."""
        match event:
            case CheckpointTriggered():
                self._triggered_s = time.monotonic()
            case PieceCommitted(sink=sink, proof=""):
                self.visible_s[sink].append(time.monotonic() - self._triggered_s)
            case _:
                pass


@click.command("commit_ahead")
@click.option("--checkpoints", default=40, show_default=True, help="Checkpoints of a round.")
@click.option("--slower-ms", default=300, show_default=True, help="How much longer one sink takes.")
@click.option("--rounds", default=3, show_default=True, help="Rounds of each mode.")
def command(checkpoints: int, slower_ms: int, rounds: int) -> None:
    """A sink that commits ahead of a slower one against one that waits for it."""
    found = {mode: Measured() for mode in _MODES}
    for _ in range(rounds):
        for mode, measured in found.items():
            with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
                _take(Path(folder), mode, measured, checkpoints, slower_ms / 1000)
    shown = table(
        f"Two sinks of files, one {slower_ms} ms slower: ms from the trigger until visible",
        *("mode", "sink", "p50", "p95", "p99", "max"),
    )
    for mode, measured in found.items():
        for sink, times_s in measured.visible_s.items():
            shown.add_row(mode, sink, *milliseconds(times_s))
    ahead, waits = (found[mode] for mode in _MODES)
    ratio = statistics.median(waits.visible_s[_FASTER]) / statistics.median(
        ahead.visible_s[_FASTER]
    )
    cost = (
        f"It costs {_each(ahead, 'records') - _each(waits, 'records'):.2f} records and "
        f"{_each(ahead, 'fsyncs') - _each(waits, 'fsyncs'):.2f} fsyncs a checkpoint, beside "
        f"{_each(waits, 'records'):.2f} and {_each(waits, 'fsyncs'):.2f}."
    )
    sooner = Ratio("waiting", "ahead", ratio, "s until the faster sink's rows are visible")
    Result("commit_ahead", [shown], [sooner], said=[cost]).show()


def _each(measured: Measured, what: str) -> float:
    return float(getattr(measured, what)) / measured.checkpoints


def _take(folder: Path, mode: str, measured: Measured, checkpoints: int, slower_s: float) -> None:
    """Take the checkpoints of one round."""
    declared = {
        name: FileSink(path=str(folder / name), format="json") for name in (_FASTER, _SLOWER)
    }
    ids = (range(number * _ROWS, (number + 1) * _ROWS) for number in range(checkpoints))
    rows = [[pa.RecordBatch.from_pydict({"id": [*found]}, schema=_SCHEMA)] for found in ids]
    job = folder / "job"
    given = {"checkpointLocation": str(job), "checkpoint.mode": mode}
    options = JobOptions.parse(given, f"job {_JOB!r}")
    with _counted() as fsyncs:

        def begun() -> None:  # recovery is not counted
            measured.records -= _newest(job)
            measured.fsyncs -= len(fsyncs)

        host = _Host(_JOB, options, ListedRows(rows), _Workers(slower_s))
        host.begun = begun
        engine = Engine(host, _JOB, declared, options, Observers(measured.observe))
        engine.start()
        engine.await_termination()
    measured.records += _newest(job)
    measured.fsyncs += len(fsyncs)
    measured.checkpoints += checkpoints


class _Host(MemoryHost):
    """Tells when the query starts.

    Attributes:
        begun: called then.
    """

    begun: Callable[[], None]

    def start(
        self,
        coordinator: CheckpointCoordinator,
        folder: PlainFolder,
        plan: Plan,
        handle: Handle,
    ) -> PlainQuery:
        """See `QueryHost.start`."""
        self.begun()
        return super().start(coordinator, folder, plan, handle)


class _Workers(InThisProcess):
    """Pre-commits to one sink later than to the other.

    Args:
        slower_s: how much later.
    """

    def __init__(self, slower_s: float) -> None:
        self._slower_s = slower_s

    def run(
        self, tasks: Sequence[Task], timeout_s: float, stopping: threading.Event, done: Done
    ) -> None:
        """See `Workers.run`."""
        for task in tasks:
            if task.sink == _SLOWER:
                time.sleep(self._slower_s)  # the work that it has more
            super().run([task], timeout_s, stopping, done)


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Note the descriptor of each call of `os.fsync`."""
    real, calls = os.fsync, list[int]()

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        real(descriptor)

    with mock.patch.object(os, "fsync", fsync):
        yield calls


def _newest(folder: Path) -> int:
    """The number of the newest record of a log; no fold sets it back."""
    return max(int(path.name) for path in (folder / FOLDER).iterdir() if path.name.isdigit())
