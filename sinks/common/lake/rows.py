"""Rows in the layout of a lake's table, and checks of their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from twophase.errors import RejectedRowsError
from twophase.ids import Subtask, TransactionId
from twophase.sinks.common.staging.formats import check_utf8
from twophase.sinks.common.staging.times import check_years

_MARKS = frozenset({b"variant", b"geometry", b"geography"})
_WHERE = "the statistics of a file"


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: its name.
        kind: its type in the file.
        required: whether each row needs a value.
    """

    name: str
    kind: pa.DataType
    required: bool


def in_table_order(
    batch: pa.RecordBatch,
    columns: Sequence[TableColumn],
    transaction: TransactionId,
    subtask: Subtask,
) -> pa.RecordBatch:
    """Return rows with the table's columns and types; columns that they lack are null.

    Args:
        batch: the rows.
        columns: of the table.
        transaction: of the piece, for errors.
        subtask: the task attempt, for errors.

    Raises:
        RejectedRowsError: a required value is null.
        RefusedValueError: as `check_values`.
    """
    found = []
    for wanted in columns:
        at = batch.schema.get_field_index(wanted.name)
        if at < 0:
            found.append(pa.nulls(batch.num_rows, wanted.kind))
            continue
        column = batch.column(at)
        if wanted.required and column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) + 1
            raise RejectedRowsError(
                f"{transaction}: {wanted.name} is null in row {row} of a batch of subtask "
                f"{subtask}, and the table requires a value.",
                remedy="correct or filter these rows before the sink.",
            )
        check_values(wanted.name, column)
        found.append(column if column.type == wanted.kind else column.cast(wanted.kind))
    return pa.RecordBatch.from_arrays(found, [wanted.name for wanted in columns])


def check_values(name: str, column: pa.Array) -> None:
    """Check one column of rows.

    Raises:
        RefusedValueError: a text is not in UTF-8, or a date or time of the column itself is outside
            the years 1 to 9999, which the statistics of a file have.
    """
    if any(not _is_text(leaf) for leaf in _texts(column)):
        check_utf8(name, column)
    if pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type):
        check_years(name, column, _WHERE)


def duplicates(names: Sequence[str]) -> list[str]:
    """Return which names differ from another one in case only, or not at all, as sentences."""
    lower = [name.lower() for name in names]
    return [f"column {name!r} appears twice" for name in sorted({*lower}) if lower.count(name) > 1]


def refusal_of_struct(fields: Sequence[pa.Field]) -> str:
    """Return why a struct with such fields cannot be stored; empty if it can."""
    if not fields:
        return "a struct without fields cannot be stored"
    if marks := [mark for field in fields for mark in _MARKS & {*(field.metadata or {})}]:
        return f"a {marks[0].decode()} would be a struct of bytes; convert it to a string"
    twice = duplicates([field.name for field in fields])
    return twice[0] if twice else ""


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a struct."""
    return [kind.field(number) for number in range(kind.num_fields)]


def _texts(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of text that a column is made of."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield column
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts(column.flatten())
    elif pa.types.is_map(kind):
        yield from _texts(column.keys)
        yield from _texts(column.items)
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _texts(child)


def _is_text(column: pa.Array) -> bool:
    kind = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    try:
        column.view(kind).cast(column.type)
    except pa.ArrowInvalid:
        return False
    return True
