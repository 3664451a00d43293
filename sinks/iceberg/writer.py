"""Phase 1 on the executor: the data files of one task attempt, below the fence.

The steps are those of `twophase.sinks.common.staging.writer`. No reader sees the files: they lie in
a hidden folder, and no snapshot names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import pyarrow as pa
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import StatsAggregator

from twophase.errors import DeclinedError
from twophase.sinks.common.lake.rows import in_table_order
from twophase.sinks.common.staging.disk import NewFile
from twophase.sinks.common.staging.parquet_statistics import with_bounds
from twophase.sinks.common.staging.writer import PieceWriter
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.partitions import Values
from twophase.sinks.iceberg.records import FileStatistics, Manifest, SortedManifest, StagedFile
from twophase.sinks.iceberg.table import WrittenTable

V = TypeVar("V")


class IcebergWriter(PieceWriter[WrittenTable, StagedFile]):
    """Writes data files, with the statistics that Iceberg keeps of them."""

    def _begin(self) -> Path:
        """Step 1."""
        if not self._table.area.exists():
            raise DeclinedError(f"{self._table.area.path} is missing: nobody has raised the fence.")
        return super()._begin()

    def _divide(self, batch: pa.RecordBatch) -> Iterable[tuple[Values, pa.RecordBatch]]:
        return self._table.partitions.divide(self._in_table_order(batch))

    def _in_table_order(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return in_table_order(batch, self._table.columns, self._transaction, self._subtask)

    def _new_file(
        self, path: Path, number: int, values: Values, batches: list[pa.RecordBatch]
    ) -> StagedFile:
        schema = self._table.arrow_schema
        rows = pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(_named(batch, schema), schema=schema) for batch in batches]
        )
        if self._table.sorting:
            rows = self._table.sorting.sort(rows)
        with NewFile(path) as file:
            statistics = self._write_parquet(rows, file)
            file.sync()
        return StagedFile(number, values, rows.num_rows, file.size, file.sha256, statistics)

    def _manifest(self) -> Manifest:
        table, files = self._table, tuple(self._files)
        spec = table.spec.spec_id
        if not table.order_json:
            return Manifest(self._transaction, self._subtask, files, spec, table.fields)
        return SortedManifest(
            self._transaction, self._subtask, files, spec, table.fields, table.order_json
        )

    def _write_parquet(self, rows: pa.Table, file: NewFile) -> FileStatistics:
        writer = private_api.parquet_writer(
            _Output(file), self._table.file_schema, self._table.properties, with_bounds(rows)
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


def _named(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns with the names that a file has inside them: a cast would look for fields
    of these names, and find none.
    """
    columns = zip(batch.columns, schema, strict=True)
    return [
        column if column.type == field.type else column.view(field.type)
        for column, field in columns
    ]


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
