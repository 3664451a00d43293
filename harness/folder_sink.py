"""A sink for tests whose writers live in other processes: a local folder of JSON files.

    prepared/<piece>.json     pre-committed rows
    visible/<piece>.json      committed rows; the file is its own proof, moved in one atomic rename
    fences/<job>.<sink>       the fence
    high_water/<...>          proof that outlives the pieces

Every check happens under one lock of the folder together with the write that it guards (hazard rule
HD9). Not for production: rows are JSON, and nothing is synced.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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
    commit_each,
    predecessor_missing,
)
from twophase.contract.writer import SinkWriter
from twophase.errors import TargetChangedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.internals.json_values import from_json, to_json


class FolderTarget:
    """The folder, as a database would keep it."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold a lock that excludes all other processes; make the folder if it is missing."""
        for name in ("prepared", "visible", "fences", "high_water", "rewinds"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that readers see."""
        return [
            row
            for path in sorted((self.root / "visible").glob("*"))
            for row in json.loads(path.read_text())["rows"]
        ]

    def prepared(self) -> list[str]:
        """Return the names of pieces that are pre-committed and not committed."""
        return sorted(path.name for path in (self.root / "prepared").glob("*"))

    def fence(self, job: str, sink: str) -> Attempt:
        """Return the fence: attempts below it may not write."""
        try:
            return Attempt(*json.loads(self._fence_path(job, sink).read_text()))
        except FileNotFoundError:
            return Attempt(0, 0)

    def raise_fence(self, job: str, sink: str, attempt: Attempt) -> None:
        """Set the fence; the caller holds the lock."""
        _replace(self._fence_path(job, sink), [attempt.generation, attempt.counter])

    def high_water(self, job: str, sink: str) -> dict[str, int]:
        """Return, per lineage, the checkpoint up to which all is committed."""
        try:
            return dict(json.loads(self._high_water_path(job, sink).read_text()))
        except FileNotFoundError:
            return {}

    def raise_high_water(self, job: str, sink: str, lineage: str, checkpoint: int) -> None:
        """Raise the mark of one lineage; the caller holds the lock."""
        marks = self.high_water(job, sink)
        marks[lineage] = max(marks.get(lineage, -1), checkpoint)
        _replace(self._high_water_path(job, sink), marks)

    def lower_high_water(self, job: str, sink: str, keep: Mapping[str, int]) -> None:
        """Lower the mark of each lineage to what is kept of it; the caller holds the lock."""
        marks = self.high_water(job, sink)
        lowered = {name: min(mark, keep[name]) for name, mark in marks.items() if name in keep}
        _replace(self._high_water_path(job, sink), lowered)

    def pieces(self, folder: str, job: str, sink: str) -> list[Committable]:
        """Return the pieces of one job and sink in `prepared` or `visible`."""
        paths = sorted((self.root / folder).glob(f"{job}~{sink}~*.json"))
        return [
            from_json(Committable, json.loads(path.read_text())["committable"], str(path))
            for path in paths
        ]

    def rewind_path(self, job: str, sink: str) -> Path:
        """Return the file that is there from the begin of a rewind to its end."""
        return self.root / "rewinds" / f"{job}~{sink}"

    def _fence_path(self, job: str, sink: str) -> Path:
        return self.root / "fences" / f"{job}~{sink}"

    def _high_water_path(self, job: str, sink: str) -> Path:
        return self.root / "high_water" / f"{job}~{sink}"


class FolderSink(ArrowSink):
    """Writes to a `FolderTarget`.

    Args:
        path: the folder.
        kind: the class of the open sink, for a test that changes a step of it.
    """

    def __init__(self, path: str | Path, kind: type[OpenFolderSink] | None = None) -> None:
        self._path = path
        self._kind = kind or OpenFolderSink

    def open(self, context: SinkContext) -> OpenFolderSink:
        """See `Sink.open`."""
        return self._kind(self._path, context.job, context.sink)


class OpenFolderSink(OpenArrowSink):
    """A `FolderSink` that is open.

    Args:
        path: the folder.
        job: the name of the job.
        sink: the name of the sink within the job.
    """

    def __init__(self, path: str | Path, job: str, sink: str) -> None:
        self._folder = FolderTarget(path)
        self._job, self._sink = job, sink

    def target(self) -> str:
        """See `OpenSink.target`."""
        return f"folder:{self._folder.root}"

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        committed = self._folder.high_water(self._job, self._sink)
        for piece in self._folder.pieces("visible", self._job, self._sink):
            lineage = piece.transaction.lineage
            committed[lineage] = max(committed.get(lineage, -1), piece.transaction.checkpoint)
        generation = self._folder.fence(self._job, self._sink).generation
        is_half_rewound = self._folder.rewind_path(self._job, self._sink).exists()
        return SinkHistory(generation, committed, half_rewound=is_half_rewound)

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`."""
        found: dict[tuple[str, str], Mapping[str, int]] = {}
        for path in (self._folder.root / "fences").glob("*"):
            job, _, sink = path.name.partition("~")
            if (job, sink) != (self._job, self._sink):
                other = OpenFolderSink(self._folder.root, job, sink)
                found[job, sink] = other.history().committed
        return found

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        with self._folder.lock():
            fence = self._folder.fence(self._job, self._sink)
            if fence.generation > attempt.generation:
                raise driver_is_fenced(self._job, self._sink, fence, attempt)
            self._folder.raise_fence(self._job, self._sink, max(fence, attempt))

    def writers(self) -> FolderWriters:
        """See `OpenArrowSink.writers`."""
        return FolderWriters(self._folder, self.target())

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        return commit_each(requests, self._commit_one)

    def _commit_one(self, request: CommitRequest) -> CommitOutcome:
        piece = request.committable
        name, transaction = _name(piece.transaction, piece.subtask), piece.transaction
        with self._folder.lock():
            if (self._folder.root / "visible" / name).exists():
                return AlreadyCommitted("visible file")
            if piece.target != self.target():
                raise TargetChangedError(
                    f"{transaction} was written to {piece.target}, not to {self.target()}."
                )
            if not self._has(request.predecessor):
                raise predecessor_missing(request, self.target())
            try:
                (self._folder.root / "prepared" / name).rename(self._folder.root / "visible" / name)
            except FileNotFoundError:
                mark = self._folder.high_water(self._job, self._sink).get(transaction.lineage, -1)
                if transaction.checkpoint <= mark:
                    return AlreadyCommitted("high-water mark")
                return Lost(
                    f"{name} is neither prepared nor visible; the high-water mark is {mark}."
                )
        return Committed()

    def _has(self, before: Predecessor | None) -> bool:
        """Return whether the folder has proof of a checkpoint; the caller holds the lock."""
        if (
            before is None
            or self._folder.high_water(self._job, self._sink).get(before.lineage, -1)
            >= before.checkpoint
        ):
            return True
        pieces = f"{self._job}~{self._sink}~{before.lineage}-{before.checkpoint:08d}-*.json"
        return any((self._folder.root / "visible").glob(pieces))

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        for piece in committables:
            with self._folder.lock():
                (self._folder.root / "prepared" / _name(piece.transaction, piece.subtask)).unlink(
                    missing_ok=True
                )
            failpoint("C20")

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        if not self._folder.root.exists():
            return []
        with self._folder.lock():
            return self._folder.pieces("prepared", self._job, self._sink)

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`."""
        with self._folder.lock():
            pieces = [
                piece.transaction for piece in self._folder.pieces("visible", self._job, self._sink)
            ]
            proven = [piece.checkpoint for piece in pieces if piece.lineage == lineage]
            if folded := [number for number in proven if number <= checkpoint]:
                self._folder.raise_high_water(self._job, self._sink, lineage, max(folded))

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`: each piece is a file of its own, and can go."""

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`: the files first, since the mark must not go before them."""
        with self._folder.lock():
            fence = self._folder.fence(self._job, self._sink)
            if attempt.is_closed_by(fence):
                raise driver_is_fenced(self._job, self._sink, fence, attempt)
            _replace(self._folder.rewind_path(self._job, self._sink), dict(keep))
            for piece in self._folder.pieces("visible", self._job, self._sink):
                transaction = piece.transaction
                if transaction.checkpoint > keep.get(transaction.lineage, -1):
                    (self._folder.root / "visible" / _name(transaction, piece.subtask)).unlink()
            self._folder.lower_high_water(self._job, self._sink, keep)
            self._folder.rewind_path(self._job, self._sink).unlink()

    def close(self) -> None:
        """See `OpenSink.close`. There is nothing to release."""


@dataclass(frozen=True)
class FolderWriters:
    """The writers of a folder, as they are sent to the executors.

    Attributes:
        folder: the folder.
        target: its identity.
    """

    folder: FolderTarget
    target: str

    def __call__(self, transaction: TransactionId, subtask: Subtask) -> FolderWriter:
        """Create the writer of one task attempt."""
        return FolderWriter(self.folder, self.target, transaction, subtask)


class FolderWriter(SinkWriter):
    """Holds the rows of one task attempt until they are pre-committed."""

    def __init__(
        self, folder: FolderTarget, target: str, transaction: TransactionId, subtask: Subtask
    ) -> None:
        self._folder = folder
        self._target = target
        self._transaction = transaction
        self._subtask = subtask
        self._rows: list[dict[str, Any]] = []

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
        committable = Committable(transaction, self._subtask, self._target, len(self._rows))
        with self._folder.lock():
            fence = self._folder.fence(transaction.job, transaction.sink)
            if transaction.attempt.is_closed_by(fence):
                where = f"the folder {self._folder.root}"
                raise attempt_is_closed(
                    transaction.job, transaction.sink, transaction.attempt, where, fence
                )
            path = self._folder.root / "prepared" / _name(transaction, self._subtask)
            _replace(path, {"committable": to_json(committable), "rows": self._rows})
        failpoint("C05")
        return committable

    def abort(self) -> None:
        """See `SinkWriter.abort`."""
        self._rows = []


@dataclass(frozen=True)
class WrappedWriters:
    """Writers of a folder that a test has wrapped, as they are sent to the executors.

    Attributes:
        writers: those of the folder.
        wrap: called on the executor with each writer.
    """

    writers: FolderWriters
    wrap: Callable[[SinkWriter], SinkWriter]

    def __call__(self, transaction: TransactionId, subtask: Subtask) -> SinkWriter:
        """Create the writer of one task attempt."""
        return self.wrap(self.writers(transaction, subtask))


class WrappedWriter(SinkWriter):
    """Passes each call on: a test overrides what it changes."""

    def __init__(self, writer: SinkWriter) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        self._writer.write(batch)

    def flush(self) -> None:
        """See `SinkWriter.flush`."""
        self._writer.flush()

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        return self._writer.pre_commit()

    def abort(self) -> None:
        """See `SinkWriter.abort`."""
        self._writer.abort()


def with_writers(path: Path, wrap: Callable[[SinkWriter], SinkWriter]) -> FolderSink:
    """Return a sink whose writers are wrapped."""

    class Wrapped(OpenFolderSink):
        def writers(self) -> Any:
            return WrappedWriters(super().writers(), wrap)

    return FolderSink(path, Wrapped)


def _name(transaction: TransactionId, subtask: Subtask) -> str:
    return (
        f"{transaction.job}~{transaction.sink}~{transaction.lineage}-"
        f"{transaction.checkpoint:08d}-{transaction.attempt}"
        f"-{subtask}.json"
    )


def _replace(path: Path, value: Any) -> None:
    temporary = path.parent.parent / f".{path.name}.{os.getpid()}"
    temporary.write_text(json.dumps(value, default=str))
    temporary.replace(path)
