"""Phase 1 on the executor: the files of one task attempt, below the fence.

    1. look up the fence, create the piece's folder      now recovery finds the piece,
                                                         whatever happens
    2. split rows by partition and buffer them; at the limit, write the largest partition to a file
    3. at the end, or when it is flushed, write the rest to files, each synced
    4. write the manifest: from here on the piece is pre-committed

A file is written in one go: no writer stays open for each of many partitions, and no row group is
as small as a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.writer import SinkWriter
from twophase.errors import DeclinedError, RejectedRowsError, fingerprint_of
from twophase.ids import Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import RefusedValueError, Values
from twophase.sinks.common.staging import formats
from twophase.sinks.common.staging.disk import NewFile, sync, write_durably
from twophase.sinks.common.staging.manifest import FILE, Manifest, PieceManifest, StagedFile
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.rows import divide
from twophase.sinks.common.staging.staging_area import STAGED, StagingArea, remove
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.times import in_utc, is_time, numbers_of, shown_time

AHEAD, ROW_AHEAD = "ahead_us", "row_ahead"
"""Of a committable: the highest event time of rows that are too far ahead to move the watermark."""

_BUFFER_BYTES = 64 << 20


class Target(Protocol):
    """What a writer needs to know of the table that rows go to."""

    @property
    def area(self) -> StagingArea:
        """The staging area of the job and sink."""

    @property
    def target(self) -> str:
        """The target's identity (I10)."""


TableT = TypeVar("TableT", bound=Target)
FileT = TypeVar("FileT")


class PieceWriter(SinkWriter, ABC, Generic[TableT, FileT]):
    """Writes one piece.

    Args:
        table: the table that the rows go to.
        transaction: the transaction of the piece.
        subtask: this task attempt.
    """

    def __init__(self, table: TableT, transaction: TransactionId, subtask: Subtask) -> None:
        self._table = table
        self._transaction = transaction
        self._subtask = subtask
        self._name = PieceName.of(transaction, subtask)
        self._folder: Path | None = None
        self._rows: dict[tuple[Any, ...], list[pa.RecordBatch]] = {}
        self._bytes: dict[tuple[Any, ...], int] = {}
        self._files: list[FileT] = []

    @abstractmethod
    def _divide(self, batch: pa.RecordBatch) -> Iterable[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Return the rows of each partition, by its values, in the table's layout."""

    @abstractmethod
    def _new_file(
        self, path: Path, number: int, values: tuple[Any, ...], batches: list[pa.RecordBatch]
    ) -> FileT:
        """Write rows of one partition to a file, synced."""

    @abstractmethod
    def _manifest(self) -> PieceManifest:
        """Return the manifest of all files."""

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        with self._below_the_fence():
            if self._folder is None:
                self._folder = self._begin()
            for values, rows in self._divide(batch):
                self._rows.setdefault(values, []).append(rows)
                self._bytes[values] = self._bytes.get(values, 0) + rows.nbytes
            while sum(self._bytes.values()) > _BUFFER_BYTES:
                self._write_file(max(self._bytes, key=self._bytes.__getitem__))
        failpoint("E01")

    def flush(self) -> None:
        """See `SinkWriter.flush`."""
        with self._below_the_fence():
            self._write_files()

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        if self._folder is None:
            return None
        with self._below_the_fence():
            self._write_files()
            failpoint("C04")
            manifest = self._manifest()
            write_durably(self._folder / FILE, [manifest.encode()])
            failpoint("F02")
            sync(self._folder.parent)
        failpoint("C05")
        return manifest.committable(self._table.target)

    def abort(self) -> None:
        """See `SinkWriter.abort`. Recovery finds what cannot be removed now."""
        self._rows.clear()
        self._bytes.clear()
        with suppress(Exception):  # must not raise; recovery finds the piece
            remove(self._table.area.staged(self._name))

    def _begin(self) -> Path:
        """Step 1."""
        folder = self._table.area.check_open(self._transaction.attempt) / STAGED / str(self._name)
        folder.mkdir(mode=0o700)
        return folder

    def _write_files(self) -> None:
        """Step 3."""
        for values in list(self._rows):
            self._write_file(values)

    def _write_file(self, values: tuple[Any, ...]) -> None:
        """Steps 2 and 3."""
        assert self._folder is not None  # noqa: S101 there are no rows before step 1
        del self._bytes[values]
        number = len(self._files)
        path = self._folder / str(number)
        self._files.append(self._new_file(path, number, values, self._rows.pop(values)))

    @contextmanager
    def _below_the_fence(self) -> Iterator[None]:
        """Translate errors of the file system into errors of the sink."""
        try:
            yield
        except RefusedValueError as error:
            raise RejectedRowsError(
                f"{self._transaction}: rows of subtask {self._subtask} cannot be written so that "
                f"they read back unchanged: {error}.",
                remedy=error.remedy,
            ) from error
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                self._table.area.check_open(self._transaction.attempt)
            raise DeclinedError(
                f"{self._transaction}: the files of subtask {self._subtask} cannot be written: "
                f"{error}.",
                remedy="check that the table's file system has space and is writable.",
                fingerprint=fingerprint_of(error),
            ) from error


class StagedWriter(PieceWriter[Table, StagedFile]):
    """Writes files of rows as they are, for a table that is a folder."""

    def __init__(self, table: Table, transaction: TransactionId, subtask: Subtask) -> None:
        super().__init__(table, transaction, subtask)
        self._watermark_us: int | None = None
        self._ahead_us: int | None = None
        self._row_ahead = ""

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        piece = super().pre_commit()
        if piece is None or self._ahead_us is None:
            return piece
        handle = {**piece.handle, AHEAD: self._ahead_us, ROW_AHEAD: self._row_ahead}
        return replace(piece, handle=handle)

    def _divide(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        for values, rows in divide(self._in_table_order(batch), self._table.dynamic):
            if values not in self._rows:
                self._table.check(self._table.partition(values))
            yield values, rows

    def _in_table_order(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in the table's layout, and note their highest event time on the way."""
        if self._table.columns:
            batch = batch.select([*self._table.columns]).rename_columns(
                [*self._table.columns.values()]
            )
        if self._table.time is not None:
            within, ahead, number = self._table.time.highest_us(batch)
            self._watermark_us = _higher(self._watermark_us, within)
            if ahead is not None and ahead == _higher(self._ahead_us, ahead):
                self._ahead_us = ahead
                self._row_ahead = _shown_row(batch.slice(number, 1))
        return batch

    def _new_file(
        self, path: Path, number: int, values: Values, batches: list[pa.RecordBatch]
    ) -> StagedFile:
        rows = pa.Table.from_batches(batches)
        with NewFile(path) as file:
            formats.write(self._table.format, rows, file, for_hive=self._table.in_metastore)
            file.sync()
        partition = self._table.partition(values)
        return StagedFile(number, partition, rows.num_rows, file.size, file.sha256)

    def _manifest(self) -> Manifest:
        return Manifest(self._transaction, self._subtask, tuple(self._files), self._watermark_us)


def _shown_row(row: pa.RecordBatch) -> str:
    """Return a row for a message. Python has fewer years than Spark, and may not know its zone."""
    values: dict[str, Any] = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = column.cast(in_utc(column.type))[0].as_py()
        except (OverflowError, ValueError):
            values[name] = str(column.type)
            if is_time(column.type):
                values[name] = shown_time(numbers_of(column)[0].as_py(), column.type)
    return shown(values)


def _higher(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)
