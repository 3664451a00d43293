"""Sorts rows by a table's sort order, as Iceberg defines it: nulls where each field has them, and
floating-point numbers from -NaN over -0.0 and 0.0 to NaN.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder

from twophase.sinks.iceberg.transforms import Transformed, reason_against

_SIGN_BIT = 63
_ALL_OTHER_BITS = (1 << _SIGN_BIT) - 1


class Sorting:
    """One sort order.

    Args:
        order: the sort order.
        schema: the table's.
    """

    def __init__(self, order: SortOrder, schema: Schema) -> None:
        self._fields = [(field, Transformed.of(field, schema)) for field in order.fields]

    def sort(self, rows: pa.Table) -> pa.Table:
        """Return rows in order; those that are equal stay as they are.

        Args:
            rows: with the table's columns and types.
        """
        keys: dict[str, pa.Array] = {}
        order: list[tuple[str, str]] = []
        for number, (field, transformed) in enumerate(self._fields):
            values = transformed.values(rows)
            if values.null_count:
                keys[f"null {number}"] = values.is_null().cast(pa.int8())
                order.append((f"null {number}", _where_nulls_go(field)))
            if values.null_count < len(values):
                keys[f"{number}"] = _sortable(values)
                order.append((f"{number}", _direction(field)))
        return rows.take(pc.sort_indices(pa.table(keys), sort_keys=order)) if order else rows


def refusals(order: SortOrder, schema: Schema) -> list[str]:
    """Return why rows cannot be sorted by a sort order; empty if they can."""
    problems = ((field, reason_against(field, schema)) for field in order.fields)
    return [
        f"the field {field.transform}({schema.find_column_name(field.source_id)}) of its sort "
        f"order {reason}"
        for field, reason in problems
        if reason
    ]


def _direction(field: SortField) -> str:
    return "ascending" if field.direction == SortDirection.ASC else "descending"


def _where_nulls_go(field: SortField) -> str:
    """Return the direction of a key that is 1 for null and 0 for the rest."""
    return "descending" if field.null_order == NullOrder.NULLS_FIRST else "ascending"


def _sortable(values: pa.Array) -> pa.Array:
    """Return values whose order in Arrow is that of Iceberg."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = numbers.view(np.int64)
    return pa.array(bits ^ ((bits >> _SIGN_BIT) & _ALL_OTHER_BITS))
