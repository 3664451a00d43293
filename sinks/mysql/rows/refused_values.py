"""The error of a value that a column cannot store unchanged."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import RejectedRowsError
from twophase.internals.arrow_values import scalar
from twophase.internals.redaction import shown
from twophase.sinks.mysql.rows.types import ColumnPlan


def reject(values: pa.Array, bad: pa.Array, plan: ColumnPlan, why: str) -> None:
    """Raise if any value is bad, naming the first."""
    row = pc.index(bad, scalar(True)).as_py()
    if row >= 0:
        raise rejected(values, row, plan, why)


def rejected(
    values: pa.Array,
    row: int,
    plan: ColumnPlan,
    why: str,
    *,
    remedy: str = "correct the rows or change the column.",
) -> RejectedRowsError:
    """Return the error of a value that cannot be stored unchanged.

    Args:
        values: of the column, in a batch.
        row: its index in them.
        plan: of the column.
        why: half a sentence.
        remedy: what to do.
    """
    return RejectedRowsError(
        f"Row {row + 1} of a batch of {len(values)}: column {plan.column!r} cannot store "
        f"{shown(values[row].as_py())}: {why}.",
        remedy=remedy,
    )
