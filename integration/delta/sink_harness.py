"""What the tests of the Delta sink share: a table in a folder of its own, sinks for it, and a
look past the sink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from harness import delta_lake
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome, Committed
from twophase.contract.sink import CommitRequest, OpenSink, SinkContext
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.sinks.delta.sink import DeltaSink, OpenDeltaSink
from twophase.testing.harness import (
    FIRST,
    FIRST_SUBTASK,
    JOB,
    SINK,
    Row,
    SinkHarness,
    contents_of,
    fresh_name,
    transaction_id,
)

COLUMNS = "id BIGINT, name STRING, amount DOUBLE"

_RECORDS = (".intent", ".manifest", ".aborted")


class DeltaHarness(SinkHarness):
    """One table.

    Args:
        spark: with Delta.
        folder: of the table; it must not exist.
        columns: in SQL; empty: there is no table yet.
        more: what follows the columns in CREATE TABLE, such as PARTITIONED BY or TBLPROPERTIES.
        options: the sink's options.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        columns: str = COLUMNS,
        more: str = "",
        **options: Any,
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.columns = columns
        self.more = more
        self.options = options
        self.fields: pa.Schema = self.schema
        if columns:
            self.make_table()

    def make_table(self) -> None:
        self.sql(f"CREATE TABLE {{table}} ({self.columns}) USING delta {self.more}")

    def sql(self, statement: str) -> DataFrame:
        """Run a statement; `{table}` stands for the table."""
        return self.spark.sql(statement.replace("{table}", f"delta.`{self.folder}`"))

    def new_sink(self, **options: Any) -> DeltaSink:
        return DeltaSink(**{"path": str(self.folder), **self.options, **options})

    def context(self, **changes: Any) -> SinkContext:
        return SinkContext(
            **{"job": JOB, "sink": SINK, "schema": self.fields, "parallelism": 2, **changes}
        )

    def opened(self, attempt: Attempt | None = FIRST, **options: Any) -> OpenDeltaSink:
        """A sink that is open and fenced for an attempt."""
        sink = self.new_sink(**options).open(self.context())
        if attempt is not None:
            sink.fence(attempt)
        return sink

    def frame(self, rows: Sequence[Row]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), from_arrow_schema(self.fields)).coalesce(1)

    def elsewhere(self) -> DeltaHarness:
        return type(self)(
            self.spark,
            self.folder.with_name(fresh_name("orders")),
            self.columns,
            self.more,
            **self.options,
        )

    def pre_commit(
        self,
        sink: OpenSink,
        transaction: TransactionId,
        batch: pa.RecordBatch,
        subtask: Subtask = FIRST_SUBTASK,
    ) -> list[Committable]:
        assert isinstance(sink, OpenDeltaSink)
        frame = self.spark.createDataFrame(
            batch.to_pylist(), from_arrow_schema(batch.schema)
        ).coalesce(1)
        return list(sink.pre_commit(frame, transaction))

    def write(
        self, sink: OpenDeltaSink, ids: Iterable[int], checkpoint: int = 0, attempt: Attempt = FIRST
    ) -> Committable:
        """Pre-commit one piece."""
        [piece] = sink.pre_commit(self.frame(self.rows(ids)), transaction_id(checkpoint, attempt))
        return piece

    def contents(self) -> dict[str, bytes | None]:
        return contents_of(self.folder)

    def rows_visible(self) -> list[Row]:
        return [
            row.asDict() for row in self.spark.read.format("delta").load(str(self.folder)).collect()
        ]

    def ids(self) -> list[int]:
        """The ids of the visible rows, sorted; of a table without properties by a plain
        reader, which is quicker.
        """
        return sorted(
            row["id"] for row in (self.rows_visible() if self.more else self.rows_of_plain_reader())
        )

    def rows_of_plain_reader(self) -> list[Row]:
        """The visible rows of a table that was never altered, without Spark."""
        files = [self.folder / name for name in delta_lake.live_files(self.folder)]
        return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    def data_files(self) -> list[Path]:
        """Every data file in the folder, named by the log or not."""
        return sorted(self.folder.rglob("*.parquet"))

    def records(self) -> list[str]:
        """The records beside the table."""
        return sorted(
            path.name
            for path in (self.folder / "_twophase").rglob("*")
            if path.suffix in _RECORDS and not path.name.startswith(".")
        )

    def commits(self) -> list[list[dict[str, Any]]]:
        """The log as it is on the disk: the actions of each commit."""
        files = sorted((self.folder / "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def notes(self) -> list[dict[str, Any]]:
        """What the sink has written into the commits it made."""
        metadata = [
            action["commitInfo"].get("userMetadata")
            for commit in self.commits()
            for action in commit[:1]
        ]
        return [json.loads(text)["twophase"] for text in metadata if text and "twophase" in text]


def commit(sink: OpenSink, *pieces: Committable, retries: int = 0) -> list[CommitOutcome]:
    return list(sink.commit([CommitRequest(piece, retries) for piece in pieces]))


def append_twice(table: DeltaHarness) -> list[dict[str, Any]]:
    """Two checkpoints through both phases; returns the commits of the second one's rows."""
    sink = table.opened()
    for checkpoint in range(2):
        ids = range(3 * checkpoint, 3 * checkpoint + 3)
        assert commit(sink, table.write(sink, ids, checkpoint)) == [Committed()]
    assert table.ids() == list(range(6))
    return table.commits()[-1]


def acting_at(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> Callable[[str, Callable[[], None]], None]:
    """A way to do something when a module of the sink reaches a crash point, once."""

    def arrange(point: str, action: Callable[[], None]) -> None:
        pending = [action]

        def failpoint(name: str) -> None:
            if name == point and pending:
                pending.pop()()

        monkeypatch.setattr(module, "failpoint", failpoint)

    return arrange
