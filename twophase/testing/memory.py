"""The reference sink: rows in this process's memory, with every promise of the contract kept.

`MemoryTarget` stands for the database: it outlives the sinks that write to it, as a real one
outlives a crashed driver. `MemorySink` is what a job declares, `OpenMemorySink` what takes part in
its checkpoints, `MemoryWriters` and `MemoryWriter` what runs on an executor.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.fencing import attempt_is_closed, driver_is_fenced
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost
from twophase.contract.sink import (
    ArrowSink,
    CommitRequest,
    OpenArrowSink,
    Predecessor,
    SinkContext,
    SinkHistory,
    another_target,
    commit_each,
    predecessor_missing,
)
from twophase.contract.writer import SinkWriter
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.testing.harness import Identity, Row, identity

_targets: weakref.WeakValueDictionary[str, MemoryTarget] = weakref.WeakValueDictionary()


@dataclass(eq=False)
class MemoryTarget:
    """The state that a database would keep, changed only under `lock`, as in a transaction.

    Pickles to a reference, so that a pickled sink writes to the same target within this process.

    Attributes:
        name: its identity.
        visible: the rows that readers see.
        written: the rows of each committed piece, for a rewind.
        prepared: pieces that are pre-committed, with their rows.
        ledger: the pieces that were committed, until they are subsumed.
        high_water: per job, sink and lineage, the checkpoint up to which all is
            committed; kept for ever.
        fences: per job and sink, the fence; attempts below it may not write.
    """

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    visible: list[Row] = field(default_factory=list)
    written: dict[Identity, list[Row]] = field(default_factory=dict)
    prepared: dict[Identity, tuple[Committable, list[Row]]] = field(default_factory=dict)
    ledger: set[Identity] = field(default_factory=set)
    high_water: dict[tuple[str, str, str], int] = field(default_factory=dict)
    fences: dict[tuple[str, str], Attempt] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        _targets[self.name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_target, (self.name,)


def _find_target(name: str) -> MemoryTarget:
    return _targets[name]


class MemorySink(ArrowSink):
    """Writes to a `MemoryTarget`.

    Args:
        target: the target of the rows. Pass the same one again to simulate a restart.
    """

    def __init__(self, target: MemoryTarget) -> None:
        self._target = target

    def open(self, context: SinkContext) -> OpenMemorySink:
        """See `Sink.open`."""
        return OpenMemorySink(self._target, context.job, context.sink)


class OpenMemorySink(OpenArrowSink):
    """A `MemorySink` that is open.

    Args:
        target: the target of the rows.
        job: the name of the job.
        sink: the name of the sink within the job.
    """

    def __init__(self, target: MemoryTarget, job: str, sink: str) -> None:
        self._target = target
        self._job, self._sink = job, sink

    def target(self) -> str:
        """See `OpenSink.target`."""
        return f"memory:{self._target.name}"

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        with self._target.lock:
            fence = self._target.fences.get((self._job, self._sink))
            proven = [
                (key[2], key[3])
                for key in self._target.ledger
                if key[:2] == (self._job, self._sink)
            ]
            proven += [
                (key[2], mark)
                for key, mark in self._target.high_water.items()
                if key[:2] == (self._job, self._sink)
            ]
        committed: dict[str, int] = {}
        for lineage, checkpoint in proven:
            committed[lineage] = max(committed.get(lineage, -1), checkpoint)
        return SinkHistory(fence.generation if fence else 0, committed)

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        with self._target.lock:
            fence = self._target.fences.get((self._job, self._sink), attempt)
            if fence.generation > attempt.generation:
                raise driver_is_fenced(self._job, self._sink, fence, attempt)
            self._target.fences[self._job, self._sink] = max(fence, attempt)

    def writers(self) -> MemoryWriters:
        """See `OpenArrowSink.writers`."""
        return MemoryWriters(self._target)

    def write_direct(
        self, transaction: TransactionId, subtask: Subtask, rows: Sequence[Row]
    ) -> Committable | None:
        """Pre-commit `rows` as one task attempt would."""
        writer = self.writers()(transaction, subtask)
        if rows:
            writer.write(pa.RecordBatch.from_pylist(list(rows)))
        return writer.pre_commit()

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        return commit_each(requests, self._commit_one)

    def _commit_one(self, request: CommitRequest) -> CommitOutcome:
        committable = request.committable
        transaction = committable.transaction
        key = identity(committable)
        with self._target.lock:
            # Proof comes first: a committed piece no longer needs its target.
            if key in self._target.ledger:
                return AlreadyCommitted("ledger row")
            mark = self._target.high_water.get(
                (transaction.job, transaction.sink, transaction.lineage), -1
            )
            if key not in self._target.prepared and transaction.checkpoint <= mark:
                return AlreadyCommitted("high-water mark")
            if committable.target != self.target():
                raise another_target(committable, self.target())
            if not self._has(request.predecessor):
                raise predecessor_missing(request, self.target())
            if key in self._target.prepared:
                # Rows, proof and the end of "prepared" are one step: without that the proof would
                # prove nothing (I4).
                _, rows = self._target.prepared.pop(key)
                self._target.visible.extend(rows)
                self._target.written[key] = rows
                self._target.ledger.add(key)
                return Committed()
            return Lost(
                f"{transaction}: neither prepared nor in the ledger; the high-water mark is {mark}."
            )

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`."""
        sought = (self._job, self._sink, lineage, checkpoint)
        with self._target.lock:
            return sorted(f"{key[4]}/{key[5]}" for key in self._target.ledger if key[:4] == sought)

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        with self._target.lock:
            proven = [(*key[:3], key[3]) for key in self._target.ledger]
            proven += [(*key, mark) for key, mark in self._target.high_water.items()]
        for job, sink, lineage, checkpoint in proven:
            if (job, sink) != (self._job, self._sink):
                committed = found.setdefault((job, sink), {})
                committed[lineage] = max(committed.get(lineage, -1), checkpoint)
        return found

    def _has(self, before: Predecessor | None) -> bool:
        """Return whether the target has proof of a checkpoint; the caller holds the lock."""
        if before is None:
            return True
        mine = (self._job, self._sink, before.lineage)
        if self._target.high_water.get(mine, -1) >= before.checkpoint:
            return True
        return any(key[:4] == (*mine, before.checkpoint) for key in self._target.ledger)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        for committable in committables:
            with self._target.lock:
                self._target.prepared.pop(identity(committable), None)
            failpoint("C20")

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        with self._target.lock:
            return [
                committable
                for committable, _ in self._target.prepared.values()
                if (committable.transaction.job, committable.transaction.sink)
                == (self._job, self._sink)
            ]

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`."""
        mark = (self._job, self._sink, lineage)
        with self._target.lock:
            folded = {
                key for key in self._target.ledger if key[:3] == mark and key[3] <= checkpoint
            }
            if folded:
                proven = max(key[3] for key in folded)
                self._target.high_water[mark] = max(self._target.high_water.get(mark, -1), proven)
                self._target.ledger -= folded

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`: every row to remove must still be there as it was written."""
        with self._target.lock:
            there = {id(row) for row in self._target.visible}
            for key in self._after(keep):
                if any(id(row) not in there for row in self._target.written[key]):
                    raise RestoreRefusedError(
                        f"Sink {self._sink!r}: rows of checkpoint {key[3]} of lineage {key[2]} are "
                        "not there any more, and it cannot be taken back. Nothing was removed.",
                        remedy="restore the newest checkpoint, or the target as it was.",
                    )

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        with self._target.lock:
            fence = self._target.fences.get((self._job, self._sink))
            if attempt.is_closed_by(fence):
                raise driver_is_fenced(self._job, self._sink, fence, attempt)
            self.check_rewind(keep)
            gone = {key: self._target.written.pop(key) for key in self._after(keep)}
            taken = {id(row) for rows in gone.values() for row in rows}
            self._target.visible[:] = [row for row in self._target.visible if id(row) not in taken]
            self._target.ledger -= gone.keys()
            self._lower_marks(keep)

    def _after(self, keep: Mapping[str, int]) -> list[Identity]:
        """Return the committed pieces that a rewind takes back; the caller holds the lock."""
        mine = [key for key in self._target.written if key[:2] == (self._job, self._sink)]
        return [key for key in mine if key[3] > keep.get(key[2], -1)]

    def _lower_marks(self, keep: Mapping[str, int]) -> None:
        marks = self._target.high_water
        for mark in [mark for mark in marks if mark[:2] == (self._job, self._sink)]:
            if mark[2] in keep:
                marks[mark] = min(marks[mark], keep[mark[2]])
            else:
                del marks[mark]

    def close(self) -> None:
        """See `OpenSink.close`. There is nothing to release."""


@dataclass(frozen=True)
class MemoryWriters:
    """The writers of a `MemoryTarget`, as they are sent to the executors."""

    target: MemoryTarget

    def __call__(self, transaction: TransactionId, subtask: Subtask) -> MemoryWriter:
        """Create the writer of one task attempt."""
        return MemoryWriter(self.target, transaction, subtask)


class MemoryWriter(SinkWriter):
    """Holds the rows of one task attempt until they are pre-committed."""

    def __init__(self, target: MemoryTarget, transaction: TransactionId, subtask: Subtask) -> None:
        self._target = target
        self._transaction = transaction
        self._subtask = subtask
        self._rows: list[Row] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        self._rows.extend(batch.to_pylist())
        failpoint("E01")

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        if not self._rows:
            return None
        failpoint("C04")
        transaction = self._transaction
        committable = Committable(
            transaction, self._subtask, f"memory:{self._target.name}", len(self._rows)
        )
        with self._target.lock:
            # The check and the write that it guards are one step (HD9).
            fence = self._target.fences.get((transaction.job, transaction.sink))
            if transaction.attempt.is_closed_by(fence):
                raise attempt_is_closed(
                    transaction.job,
                    transaction.sink,
                    transaction.attempt,
                    f"target {self._target.name}",
                    fence,
                )
            self._target.prepared[identity(committable)] = (committable, self._rows)
        failpoint("C05")
        return committable

    def abort(self) -> None:
        """See `SinkWriter.abort`."""
        self._rows = []
