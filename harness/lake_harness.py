"""What the tables of lakes have in common under test: their columns, pieces and hidden files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenArrowSink, Sink, SinkContext
from twophase.ids import Attempt, Subtask
from twophase.testing.harness import FIRST, JOB, SINK, Row, SinkHarness, transaction_id

OpenT = TypeVar("OpenT", bound=OpenArrowSink)


class LakeHarness(SinkHarness, Generic[OpenT]):
    """One table.

    Args:
        folder: holds the table.
        fields: the columns of the rows, if they differ from those of the contract tests.
        options: the sink's options.
    """

    schema = pa.schema(
        [
            *SinkHarness.schema,
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
        ]
    )

    def __init__(self, folder: Path, fields: pa.Schema | None = None, **options: Any) -> None:
        self.folder = folder
        self.fields: pa.Schema = fields or self.schema
        self.options = options

    @abstractmethod
    def new_sink(self, **options: Any) -> Sink:
        """Return a sink for the table, with more options."""

    def opened(self, attempt: Attempt = FIRST, **options: Any) -> OpenT:
        """Return a sink that is open and fenced for an attempt."""
        context = SinkContext(JOB, SINK, self.fields, parallelism=2)
        sink = self.new_sink(**options).open(context)
        sink.fence(attempt)
        return cast(OpenT, sink)

    def write(
        self,
        sink: OpenT,
        rows: Sequence[Row],
        checkpoint: int = 0,
        attempt: Attempt = FIRST,
        subtask: Subtask | None = None,
    ) -> Committable:
        """Pre-commit one piece."""
        writer = sink.writers()(
            transaction_id(checkpoint, attempt), subtask or Subtask(0, checkpoint)
        )
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema=self.fields))
        piece = writer.pre_commit()
        assert piece is not None
        return piece

    def staged(self) -> list[Path]:
        """What lies hidden and is not committed."""
        return sorted(self.folder.rglob("_twophase~*/fence-*/staged/*"))
