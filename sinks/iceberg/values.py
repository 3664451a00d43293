"""Refuses values that Iceberg's writers or readers would not give back."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from twophase.sinks.common.staging.formats import check_utf8
from twophase.sinks.common.staging.times import check_years

_WHERE = "the statistics of a file"


def check_values(name: str, column: pa.Array) -> None:
    """Check one column of rows.

    Raises:
        RefusedValueError: a text is not in UTF-8, or a date or time of the column itself is outside
            the years 1 to 9999, which pyiceberg's statistics have.
    """
    if any(not _is_text(leaf) for leaf in _texts(column)):
        check_utf8(name, column)
    if pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type):
        check_years(name, column, _WHERE)


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
