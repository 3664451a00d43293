"""A folder under test: the files that readers see in it, and the hidden ones."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import ArrowSink, CommitRequest, OpenSink, SinkContext
from twophase.ids import Attempt, Subtask
from twophase.sinks.common.staging.names import file_name
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.file.sink import FileSink
from twophase.testing.harness import (
    FIRST,
    JOB,
    SINK,
    Row,
    SinkHarness,
    contents_of,
    fresh_name,
    transaction_id,
)

Interrupt = Callable[[str], None]
"""Makes commits die at a crash point; an empty name disarms it."""


class StagedHarness(SinkHarness):
    """The folder of one table.

    Args:
        path: the folder.
        fields: the columns of the rows, if they differ from those of the contract tests.
        options: the sink's options.
    """

    def __init__(self, path: Path, fields: pa.Schema | None = None, **options: Any) -> None:
        self.path = path
        self.fields: pa.Schema = fields or self.schema
        self.options = options

    @abstractmethod
    def new_sink(self, **options: Any) -> ArrowSink:
        """Return a declared sink, with these options too."""

    def opened(self, attempt: Attempt = FIRST, **options: Any) -> OpenStagedSink:
        """Return a sink that is open and fenced for an attempt."""
        context = SinkContext(JOB, SINK, self.fields, parallelism=2)
        sink = self.new_sink(**options).open(context)
        assert isinstance(sink, OpenStagedSink)
        sink.fence(attempt)
        return sink

    def write(
        self,
        sink: OpenStagedSink,
        rows: Sequence[Row],
        checkpoint: int = 0,
        attempt: Attempt = FIRST,
    ) -> Committable:
        """Pre-commit one piece."""
        writer = sink.writers()(transaction_id(checkpoint, attempt), Subtask(0, checkpoint))
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema=self.fields))
        piece = writer.pre_commit()
        assert piece is not None
        return piece

    def contents(self) -> object:
        """See `SinkHarness`."""
        return contents_of(self.path)

    def rows_with_nulls(self) -> list[Row]:
        """Return rows without an empty partition value: it would read back as
        NULL, and is refused.
        """
        rows = super().rows_with_nulls()
        return [row for row in rows if "" not in map(row.get, self.options.get("partition_by", ()))]

    def rows_of_extremes(self) -> list[Row]:
        """Return rows without the texts that cannot name a partition, which are refused."""
        rows = super().rows_of_extremes()
        by_name = "name" in self.options.get("partition_by", ())
        return [row | {"name": rows[0]["name"]} for row in rows] if by_name else rows

    def files(self) -> list[Path]:
        """Every file that readers see."""
        return sorted(
            path for path in self.path.rglob("*.*") if path.is_file() and not self._hidden(path)
        )

    def staged(self) -> list[Path]:
        """What lies hidden and is not committed."""
        return sorted(self.path.glob("_twophase~*/fence-*/staged/*"))

    def _hidden(self, path: Path) -> bool:
        return any(name.startswith(("_", ".")) for name in path.relative_to(self.path).parts)


class FileHarness(StagedHarness):
    """One folder of files."""

    def __init__(self, path: Path, fields: pa.Schema | None = None, **options: Any) -> None:
        super().__init__(path, fields, **options)
        self.has_one_order = options.get("format") == "csv"

    def new_sink(self, **options: Any) -> FileSink:
        return FileSink(**{"path": str(self.path), **self.options, **options})

    def elsewhere(self) -> FileHarness:
        return FileHarness(self.path.parent / fresh_name("orders"), self.fields, **self.options)

    def rows_visible(self) -> list[Row]:
        if not self.path.exists():
            return []
        columns = [self.fields.field(name) for name in self.options.get("partition_by", ())]
        partitioning = ds.partitioning(pa.schema(columns), flavor="hive") if columns else None
        name = self.options.get("format", "parquet")
        # As in Spark: NULL is nothing between two commas, an empty text is quoted, NaN is a number.
        nulls = pyarrow.csv.ConvertOptions(
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        kind = ds.CsvFileFormat(convert_options=nulls) if name == "csv" else name
        if not self.files():
            return []
        found = ds.dataset(self.path, self.fields, format=kind, partitioning=partitioning)
        table = self._of_json(found) if name == "json" else found.to_table()
        return list(table.select(self.fields.names).to_pylist())

    def _of_json(self, found: ds.Dataset) -> pa.Table:
        """Read lines as Spark does, which takes the text NaN for a number."""
        rows = [
            {**ds.get_partition_keys(fragment.partition_expression), **json.loads(line)}
            for fragment in found.get_fragments()
            for line in Path(fragment.path).read_bytes().splitlines()
        ]
        columns = [
            _column(field.type, [row.get(field.name) for row in rows]) for field in self.fields
        ]
        return pa.table(columns, schema=self.fields)


def _column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    return pa.array(values).cast(kind)


def final(table: FileHarness, number: int) -> Path:
    """Return the committed path of a file of the fixture `piece`."""
    name = file_name(transaction_id(), Subtask(0, 0), number, ".parquet")
    return table.path / f"name=row {number}" / name


def commit(sink: OpenSink, *pieces: Committable) -> list[CommitOutcome]:
    return list(sink.commit([CommitRequest(piece) for piece in pieces]))


def orders(ids: Iterable[int], **more: Any) -> list[Row]:
    """Return rows of the contract's schema."""
    return [{"id": number, "name": f"row {number}", "amount": number / 2, **more} for number in ids]
