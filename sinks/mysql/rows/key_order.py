"""Rows in the order of the key that the table is stored by.

InnoDB keeps the rows of a table in a tree, in the order of the primary key. Rows that come in this
order fill a page after the other; in any other order each of them may touch another page. Only
speed depends on it, so the order need not be the server's: a collation may sort texts otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.table import Table

_NUMBERS = "nextval", "next value", "sysdate", "uuid_short", "uuid_v7"
_SORTED = (
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
)


def key_order(table: Table, plans: Sequence[ColumnPlan]) -> tuple[str, ...]:
    """Return the fields of the rows that the table is stored by; none to leave the order alone.

    It is left alone if the table has no such key, if the rows do not fill it, and wherever the
    order in which rows arrive could be seen: by a trigger, by a column that numbers them, and by a
    row that refers to another one, which has to come first.

    Args:
        table: the target.
        plans: how rows fill it; none if no rows will follow.
    """
    given = {plan.column: plan for plan in plans}
    columns = {column.name: column for column in table.columns}
    if table.refers_to_itself or table.triggers or not table.unique_keys:
        return ()
    if any(_numbers_rows(column) for column in table.columns if column.name not in given):
        return ()
    key = [name for name in table.unique_keys[0] if name is not None and name in given]
    if len(key) < len(table.unique_keys[0]) or any(columns[name].nullable for name in key):
        return ()
    if not all(any(fits(given[name].type) for fits in _SORTED) for name in key):
        return ()
    return tuple(given[name].field for name in key)


def in_order(batches: Sequence[pa.RecordBatch], order: Sequence[str]) -> list[pa.RecordBatch]:
    """Return the rows of some batches in one batch, sorted; the batches if they are sorted.

    Args:
        batches: at least one.
        order: the fields to sort by; none leaves the batches as they are.
    """
    if not order:
        return [*batches]
    rows = pa.Table.from_batches(batches)
    # by number: a name that begins with a dot would be a path
    key = pa.table({str(place): rows.column(name) for place, name in enumerate(order)})
    if _are_in_order(key.columns):
        return [*batches]
    places = pc.sort_indices(key, sort_keys=[(name, "ascending") for name in key.column_names])
    found: list[pa.RecordBatch] = rows.take(places).combine_chunks().to_batches()
    return found


def _are_in_order(key: Sequence[pa.ChunkedArray]) -> bool:
    """Return whether no row is greater than the next one; False where a value is NULL."""
    kept: Any = pa.scalar(True)
    for column in reversed(key):
        row, following = column[:-1], column[1:]
        kept = pc.or_(pc.less(row, following), pc.and_(pc.equal(row, following), kept))
    return bool(pc.all(kept, skip_nulls=False, min_count=0).as_py())


def _numbers_rows(column: Column) -> bool:
    default = (column.default or "").lower()
    return column.auto_increment or any(word in default for word in _NUMBERS)
