"""A driver of the coordinator itself, for tests below the engine's loop: memory sinks, a local
folder, and a clock that only the test advances.

It takes the job over with the engine's `Driver`, and then calls the coordinator for the checkpoints
that the test names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from harness.memory_host import NO_ROWS, MemoryHost
from twophase.contract.listener import CheckpointedFunction
from twophase.contract.sink import Sink, SinkContext
from twophase.contract.source import SourceLeg
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.fan_out import FanOut, sequentially
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.plan import Restore
from twophase.engine.driver import Driver as EngineDriver
from twophase.engine.host import Plan
from twophase.events import Event, Observers
from twophase.ids import Subtask, new_lineage_id
from twophase.internals import failpoints
from twophase.internals.failpoints import FailpointError
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import (
    CompletedCheckpoint,
    FrozenOffsets,
    OperatorStateFields,
)
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import LocalStorage, Storage
from twophase.state.journal.entries import Lineage, Note
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.memory import MemoryTarget, OpenMemorySink
from twophase.testing.plain_host import FreshStart, PlainHost

JOB = "orders"
SCHEMA = pa.schema([("id", pa.int64())])
NOTE = Note("ann@host", 1_700_000_000_000, "the branch was rolled back by hand")
"""The note of a repair: its author, time and reason."""


class ManualClock:
    """A clock that stands still until somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []

    def monotonic_s(self) -> float:
        return self.now_s

    def unix_ms(self) -> int:
        return int(self.now_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self.now_s += timeout_s
        return event.is_set()


def rows(ids: Iterable[int]) -> list[dict[str, int]]:
    """Rows for those ids; a schema may leave out columns."""
    return [{"id": number, "parity": number % 2} for number in ids]


def offsets(number: int) -> FrozenOffsets:
    """Checkpoint n reads ids 10 n to 10 n + 9."""
    start = (f'{{"next":{number * 10}}}',) if number else (None,)
    return FrozenOffsets(start, (f'{{"next":{number * 10 + 10}}}',))


def open_sinks(
    declared: Mapping[str, Sink], job: str = JOB, schema: pa.Schema = SCHEMA
) -> dict[str, Any]:
    """Open sinks of other kinds than the memory sink, for a `Driver`."""
    return {name: sink.open(SinkContext(job, name, schema, 2)) for name, sink in declared.items()}


class _Host(MemoryHost):
    """A host that starts no query."""

    def __init__(self, context: JobContext, states: OperatorStates) -> None:
        super().__init__(context.job, context.options, NO_ROWS)
        self._states = states

    def beginning(self, context: JobContext, plan: Plan) -> _Beginning:
        return _Beginning(self._states)

    def snapshot(self, checkpoint: int, offsets: FrozenOffsets) -> OperatorStateFields:
        return self._states.snapshot(checkpoint, offsets)


class _Beginning(FreshStart):
    """Reads a checkpoint only if a function needs its state."""

    def __init__(self, states: OperatorStates) -> None:
        super().__init__()
        self._states = states

    def initialize_states(self, coordinator: CheckpointCoordinator) -> None:
        context, newest, found = coordinator.context, coordinator.newest(), None
        options = coordinator.options
        if newest and self._states.has_functions:
            may_drop = options.allow_non_restored_state
            found = context.store.read_with_states(newest, may_drop=may_drop)
        self._states.initialize(found, options)


@dataclass
class Driver:
    """One driver of the job, with targets and a folder that outlive it."""

    folder: Path
    targets: dict[str, MemoryTarget]
    options: Mapping[str, Any] = field(default_factory=dict)
    sinks: dict[str, OpenMemorySink] = field(default_factory=dict)
    listeners: Sequence[Any] = ()
    events: list[Event] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    storage: Storage | None = None
    fan_out: FanOut = sequentially
    functions: Mapping[str, CheckpointedFunction] = field(default_factory=dict)
    job: str = JOB
    schema: pa.Schema = SCHEMA
    source: str = "memory"
    new_host: Callable[[JobContext, OperatorStates], PlainHost] | None = None

    def __post_init__(self) -> None:
        for name, target in self.targets.items():
            self.sinks.setdefault(name, OpenMemorySink(target, self.job, name))
        self.states = OperatorStates([SourceLeg(self.source, {})], self.functions)
        given = {
            "checkpointLocation": str(self.folder),
            "restore.allow_unproven_sources": "true",  # the numbers are always there
            **self.options,
        }
        parsed = JobOptions.parse(given, "job")
        self.context = context = JobContext(
            self.job,
            self.storage or LocalStorage(self.folder),
            self.sinks,
            parsed,
            Observers(self.events.append),
            self.clock,
            listeners=self.listeners,
            fan_out=self.fan_out,
        )
        self.driver = EngineDriver((self.new_host or _Host)(context, self.states), context)
        self.coordinator = self.driver.coordinator

    @property
    def history(self) -> History:
        """What the log says, as of its last read or append."""
        return self.context.history

    def recover(self) -> Self:
        self.driver.take_over()
        return self

    def write(self, pending: PendingCheckpoint) -> None:
        """Give every sink the ten rows of the checkpoint in two pieces."""
        self.write_rows(pending, pending.checkpoint * 10)

    def write_rows(self, pending: PendingCheckpoint, first: int) -> None:
        """Give every sink that is asked to write ten rows, from the first one on."""
        for name in pending.missing():
            sink = self.sinks[name]
            pieces = []
            for index in (0, 1):
                ids = range(first + index * 5, first + index * 5 + 5)
                subtask = Subtask(index, pending.attempt.counter * 100 + index)
                writer = sink.writers()(pending.transaction(name), subtask)
                writer.write(pa.RecordBatch.from_pylist(rows(ids), schema=self.schema))
                piece = writer.pre_commit()
                assert piece is not None
                pieces.append(piece)
            pending.acknowledge(name, pieces)

    def run(
        self, number: int, pre_commit: Callable[[PendingCheckpoint], None] | None = None
    ) -> None:
        self.coordinator.classify(number, offsets(number))
        self.coordinator.checkpoint(number, offsets(number), pre_commit or self.write)

    def dies_undecided(self, number: int) -> None:
        """Give every sink its pieces, and die before the decision."""

        def dies(pending: PendingCheckpoint) -> None:
            self.write(pending)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.run(number, dies)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def completed_of(folder: Path, number: int, job: str = JOB) -> CompletedCheckpoint:
    log = JobLog(LocalStorage(folder), job)
    found = next(entry for entry in log.read().decisions if entry.checkpoint == number)
    return CompletedCheckpointStore(LocalStorage(folder), log, 1).read(found)


def restoring(checkpoint: CompletedCheckpoint, *, committed: bool) -> Restore:
    """Restore from a copy whose log has the checkpoint as committed, or only as decided."""
    lineage = Lineage(
        new_lineage_id(),
        restored_from=f"/copy/chk/{checkpoint.lineage}-{checkpoint.checkpoint}",
        first_checkpoint=1,
        start=checkpoint.offsets.end,
        ancestors={checkpoint.lineage: checkpoint.checkpoint},
        proofs=checkpoint.proofs,
        origin=f"{checkpoint.lineage}-{checkpoint.checkpoint}",
    )
    return Restore(checkpoint, lineage, adopting=() if committed else (checkpoint,))


def visible(target: MemoryTarget) -> list[int]:
    return sorted(row["id"] for row in target.visible)


def dying(point: str, run: Callable[[], object]) -> None:
    """Run an action that dies at a crash point."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_rules", failpoints._parse(f"{point}=raise"))
        patch.setattr(failpoints, "_hits", {})
        with pytest.raises(FailpointError):
            run()


def decided(driver: Driver, number: int) -> None:
    """Die with the checkpoint decided and committed nowhere."""
    dying("C11", lambda: driver.run(number))


def lose(target: MemoryTarget, number: int, *indices: int) -> None:
    """Roll pieces back, as somebody might by hand."""
    gone = [key for key in target.prepared if key[3] == number and key[5].index in indices]
    assert len(gone) == len(indices)
    for key in gone:
        del target.prepared[key]


def frozen(_: str, batch: int) -> FrozenOffsets | None:
    """Spark's folder is whole."""
    return offsets(batch)


def nothing(_: str, __: int) -> FrozenOffsets | None:
    """Spark's folder is gone."""
    return None


def remove_body(folder: Path, number: int) -> None:
    found = [
        one
        for one in JobLog(LocalStorage(folder), JOB).read().decisions
        if one.checkpoint == number
    ]
    (folder / found[-1].folder / "_metadata").unlink()
