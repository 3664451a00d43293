"""Phase 1 on the executor: the data files of one task attempt, below the fence.

    1. look up the fence, create the piece's folder      now recovery finds the piece,
                                                         whatever happens
    2. split rows by partition and buffer them; at the limit, write the largest partition to a file
    3. at the end, or when it is flushed, write the rest to files, each synced
    4. write the manifest: from here on the piece is pre-committed

No reader sees the files: they lie in a hidden folder, and no snapshot names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import StatsAggregator
from pyiceberg.manifest import FileFormat

from twophase.contract.committable import Committable
from twophase.contract.writer import SinkWriter
from twophase.errors import DeclinedError, RejectedRowsError
from twophase.ids import Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.sinks.common.partition_names import RefusedValueError
from twophase.sinks.common.staging.disk import NewFile, sync, write_durably
from twophase.sinks.common.staging.manifest import FILE
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.common.staging.staging_area import STAGED, remove
from twophase.sinks.iceberg.columns import check_values
from twophase.sinks.iceberg.partitions import Values
from twophase.sinks.iceberg.records import FileStatistics, Manifest, StagedFile
from twophase.sinks.iceberg.table import WrittenTable

_BUFFER_BYTES = 64 << 20

V = TypeVar("V")


class IcebergWriter(SinkWriter):
    """Writes one piece.

    Args:
        table: the table that the rows go to.
        transaction: the transaction of the piece.
        subtask: this task attempt.
    """

    def __init__(self, table: WrittenTable, transaction: TransactionId, subtask: Subtask) -> None:
        self._table = table
        self._transaction = transaction
        self._subtask = subtask
        self._name = PieceName.of(transaction, subtask)
        self._folder: Path | None = None
        self._rows: dict[Values, list[pa.RecordBatch]] = {}
        self._bytes: dict[Values, int] = {}
        self._files: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        with self._below_the_fence():
            if self._folder is None:
                self._folder = self._begin()
            for values, rows in self._table.partitions.divide(self._in_table_order(batch)):
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
            manifest = Manifest(
                self._transaction,
                self._subtask,
                self._table.spec.spec_id,
                self._table.fields,
                tuple(self._files),
            )
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
        if not self._table.area.exists():
            raise DeclinedError(f"{self._table.area.path} is missing: nobody has raised the fence.")
        folder = self._table.area.check_open(self._transaction.attempt) / STAGED / str(self._name)
        folder.mkdir(mode=0o700)
        return folder

    def _in_table_order(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the table's columns and types; columns that they lack are null."""
        columns = []
        for field, form in zip(self._table.schema.fields, self._table.arrow_schema, strict=True):
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                columns.append(pa.nulls(batch.num_rows, form.type))
                continue
            column = batch.column(at)
            if field.required and column.null_count:
                row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) + 1
                raise RejectedRowsError(
                    f"{self._transaction}: {field.name} is null in row {row} of a batch of subtask "
                    f"{self._subtask}, and the table requires a value.",
                    remedy="correct or filter these rows before the sink.",
                )
            check_values(field.name, column)
            columns.append(column if column.type == form.type else column.cast(form.type))
        names = [field.name for field in self._table.schema.fields]
        return pa.RecordBatch.from_arrays(columns, names)

    def _write_files(self) -> None:
        """Step 3."""
        for values in list(self._rows):
            self._write_file(values)

    def _write_file(self, values: Values) -> None:
        """Steps 2 and 3."""
        assert self._folder is not None  # noqa: S101 there are no rows before step 1
        del self._bytes[values]
        batches = self._rows.pop(values)
        schema = self._table.arrow_schema
        rows = pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches]
        )
        number = len(self._files)
        with NewFile(self._folder / str(number)) as file:
            statistics = self._write_parquet(rows, file)
            file.sync()
        self._files.append(
            StagedFile(number, values, rows.num_rows, file.size, file.sha256, statistics)
        )

    def _write_parquet(self, rows: pa.Table, file: NewFile) -> FileStatistics:
        writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(
            _Output(file), self._table.file_schema, dict(self._table.properties)
        )
        with writer:
            writer.write(rows)
        found = writer.result()
        bounds = found.column_aggregates.items()
        return FileStatistics(
            _by_id(found.column_sizes),
            _by_id(found.value_counts),
            _by_id(found.null_value_counts),
            _by_id(found.nan_value_counts),
            _by_id({column: one.min_as_bytes() for column, one in bounds}),
            _by_id({column: _upper_bound(one) for column, one in bounds}),
            tuple(found.split_offsets),
        )

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
            ) from error


def _by_id(values: Mapping[int, V | None]) -> dict[str, V]:
    return {str(column): value for column, value in values.items() if value is not None}


def _upper_bound(values: StatsAggregator) -> bytes | None:
    """Return the upper bound of a column; None, which a reader takes for no bound, where pyiceberg
    makes half of a surrogate pair of the last character of a text.
    """
    try:
        return values.max_as_bytes()
    except UnicodeEncodeError:
        return None


class _Output(OutputFile):
    """A file that is being written already, as pyiceberg takes it."""

    def __init__(self, file: NewFile) -> None:
        super().__init__("")
        self._file = file

    def __len__(self) -> int:
        return self._file.size

    def exists(self) -> bool:
        return True

    def to_input_file(self) -> InputFile:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002
        return cast(OutputStream, _KeptOpen(self._file))


class _KeptOpen:
    """A file that pyiceberg's writer does not close: it is synced first."""

    closed = False

    def __init__(self, file: NewFile) -> None:
        self.write = file.write
        self.flush = file.flush

    def close(self) -> None:
        pass

    def __enter__(self) -> _KeptOpen:
        return self

    def __exit__(self, *_: object) -> None:
        pass
