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
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import click
import pyarrow as pa

from benchmarks.report import console, milliseconds, table
from twophase.config import JobOptions
from twophase.coordinator.clock import SystemClock
from twophase.coordinator.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.pending import PendingCheckpoint
from twophase.events import CheckpointTriggered, Event, Observers, PieceCommitted
from twophase.ids import Subtask, new_lineage_id
from twophase.protocol.sink import (
    OpenSink,
    SinkContext,
)
from twophase.sinks.file.sink import FileSink
from twophase.state.checkpoint import FrozenOffsets
from twophase.state.entries import Lineage
from twophase.state.log import FOLDER
from twophase.state.storage import LocalStorage

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
    console.print(shown)
    ahead, waits = (found[mode] for mode in _MODES)
    ratio = statistics.median(waits.visible_s[_FASTER]) / statistics.median(
        ahead.visible_s[_FASTER]
    )
    console.print(
        f"The faster sink's rows are visible [bold]{ratio:.1f}[/bold] times sooner, for "
        f"{_each(ahead, 'records') - _each(waits, 'records'):.2f} records and "
        f"{_each(ahead, 'fsyncs') - _each(waits, 'fsyncs'):.2f} fsyncs more a checkpoint "
        f"({_each(waits, 'records'):.2f} and {_each(waits, 'fsyncs'):.2f} without)."
    )


def _each(measured: Measured, what: str) -> float:
    return float(getattr(measured, what)) / measured.checkpoints


def _take(folder: Path, mode: str, measured: Measured, checkpoints: int, slower_s: float) -> None:
    """Take the checkpoints of one round."""
    sinks = {
        name: FileSink(path=str(folder / name), format="json").open(
            SinkContext(_JOB, name, _SCHEMA, 1)
        )
        for name in (_FASTER, _SLOWER)
    }
    coordinator = _coordinator(folder / "job", mode, sinks, measured)

    def write(pending: PendingCheckpoint) -> None:
        for name in pending.missing():
            if name == _SLOWER:
                time.sleep(slower_s)  # the work that it has more
            rows = range(pending.checkpoint * _ROWS, (pending.checkpoint + 1) * _ROWS)
            subtask = Subtask(0, pending.attempt.counter)
            writer = sinks[name].writers()(pending.transaction(name), subtask)
            writer.write(pa.RecordBatch.from_pydict({"id": [*rows]}, schema=_SCHEMA))
            piece = writer.pre_commit()
            pending.acknowledge(name, [piece] if piece else [])

    before = _newest(folder / "job")
    with _counted(measured):
        for number in range(checkpoints):
            offsets = _offsets(number)
            coordinator.classify(number, offsets)
            coordinator.checkpoint(number, offsets, write)
    measured.records += _newest(folder / "job") - before
    measured.checkpoints += checkpoints


@contextmanager
def _counted(measured: Measured) -> Iterator[None]:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        measured.fsyncs += 1
        real(descriptor)

    with mock.patch.object(os, "fsync", fsync):
        yield


def _coordinator(
    folder: Path, mode: str, sinks: Mapping[str, OpenSink], measured: Measured
) -> CheckpointCoordinator:
    given = {"checkpointLocation": str(folder), "checkpoint.mode": mode}
    context = JobContext(
        *(_JOB, LocalStorage(folder), sinks, JobOptions.parse(given, f"job {_JOB!r}")),
        *(Observers(measured.observe), SystemClock()),
    )
    coordinator = CheckpointCoordinator(context, snapshot=lambda _, __: {})
    coordinator.recover()
    coordinator.begin_lineage(Lineage(new_lineage_id()))
    return coordinator


def _newest(folder: Path) -> int:
    """The number of the newest record of a log; no fold sets it back."""
    return max(int(path.name) for path in (folder / FOLDER).iterdir() if path.name.isdigit())


def _offsets(number: int) -> FrozenOffsets:
    start = (f'{{"next":{number}}}',) if number else (None,)
    return FrozenOffsets(start, (f'{{"next":{number + 1}}}',))
