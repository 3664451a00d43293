"""Rows as text for the server, column by column, without touching a single value in Python.

Each column is cast to strings, NULL is written as the text format writes it, and the strings of a
row are joined; the buffer of the joined array is sent as it is. What else was measured is in
docs/benchmarks.md, "Rows as text for MySQL".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import RejectedRowsError
from twophase.internals.arrow_values import scalar
from twophase.sinks.mysql.rows.encoders import ENCODERS, converted
from twophase.sinks.mysql.rows.refused_values import rejected
from twophase.sinks.mysql.rows.text_formats import TextFormat
from twophase.sinks.mysql.rows.types import ColumnPlan


@dataclass(frozen=True)
class Encoded:
    """Rows as bytes.

    Attributes:
        data: all rows, one after the other.
        ends: the start of each row, and the end of the last one: one entry more
            than there are rows.
    """

    data: memoryview
    ends: np.ndarray[tuple[int], np.dtype[np.int32]]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.ends) - 1


def encode(batch: pa.RecordBatch, plans: Sequence[ColumnPlan], text_format: TextFormat) -> Encoded:
    """Encode the rows of a batch.

    Args:
        batch: has a column for each plan, found by name; at least one row.
        plans: the columns, in the order in which they are written. A short last one is cheapest.
        text_format: the format.

    Raises:
        RejectedRowsError: a value cannot be stored unchanged; names the first.
    """
    before, between, after = text_format.row
    columns = [_column(batch, plan, text_format) for plan in plans]
    columns[-1] = _join([columns[-1], after], "", text_format)
    if before:
        columns[0] = _join([before, columns[0]], "", text_format)
    return _as_bytes(_join(columns, between, text_format))


def _join(parts: Sequence[pa.Array | str], separator: str, text_format: TextFormat) -> pa.Array:
    whole = (scalar(part) if isinstance(part, str) else part for part in (*parts, separator))
    return pc.binary_join_element_wise(
        *whole, null_handling="replace", null_replacement=text_format.null
    )


def _as_bytes(rows: pa.Array) -> Encoded:
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[rows.offset : rows.offset + len(rows) + 1]
    return Encoded(memoryview(data)[ends[0] : ends[-1]].cast("B"), ends - ends[0])


def _column(batch: pa.RecordBatch, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    index = batch.schema.get_field_index(plan.field)
    if index < 0:
        raise RejectedRowsError(
            f"A batch needs exactly one column {plan.field!r}; it has {batch.schema.names}.",
            remedy="restart the job with the schema that the rows have.",
        )
    values = converted(batch.column(index), plan)
    if values.null_count and not plan.nullable:
        row = pc.index(pc.is_null(values), scalar(True)).as_py()
        raise rejected(values, row, plan, "the column takes no NULL", remedy=plan.instead_of_null)
    return ENCODERS[plan.encoding](values, plan, text_format)
