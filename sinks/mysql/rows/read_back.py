"""Reads rows back within the branch, and compares them with what was sent.

A net below all plans: whatever changes a row on its way into the table shows here, a trigger of the
table above all. All rows of a small statement are read, a sample of a large one, and all rows if a
trigger runs before each insert. A row is found by a key that the rows fill; without one, the first
row of a statement by the number that the server gave it; else not at all (docs/loss.md).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from twophase.errors import RejectedRowsError
from twophase.internals.redaction import shown
from twophase.sinks.mysql.client.identifiers import quote
from twophase.sinks.mysql.client.session import Row, Session
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.encoders import converted
from twophase.sinks.mysql.rows.json_documents import value_of
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.table import Table

SAMPLE_ROWS = 16
_ROWS_AT_ONCE = 200
_SAMPLE_BYTES = 64_000
_NO_KEY = (Encoding.FLOAT, Encoding.JSON)


@dataclass(frozen=True)
class ReadBack:
    """Reads rows of one table back.

    Attributes:
        table: the target's quoted name.
        plans: the plan of each column.
        key: those of a unique key that every row fills; empty if there is none.
        numbered: the column in which the server numbers the rows, if they do not fill it.
        whole: every row is read back, not a sample.
    """

    table: str
    plans: tuple[ColumnPlan, ...]
    key: tuple[ColumnPlan, ...] = ()
    numbered: str = ""
    whole: bool = False

    @classmethod
    def of(cls, table: Table, plans: tuple[ColumnPlan, ...]) -> ReadBack:
        """Return how rows of these plans are read back."""
        filled = {
            plan.column: plan
            for plan in plans
            if not (plan.nullable or plan.encoding in _NO_KEY or pa.types.is_null(plan.type))
        }
        keys = [key for key in table.unique_keys if all(column in filled for column in key)]
        planned = {plan.column for plan in plans}
        numbered = [column.name for column in table.columns if column.auto_increment]
        return cls(
            table.sql,
            plans,
            tuple(filled[str(column)] for column in keys[0]) if keys else (),
            next((name for name in numbered if name not in planned), ""),
            any(trigger.timing == "BEFORE" for trigger in table.triggers),
        )

    def check(self, session: Session, batches: Sequence[pa.RecordBatch]) -> None:
        """Compare rows of the last statement with what the branch has.

        Args:
            session: the writer's.
            batches: what the statement has loaded.

        Raises:
            RejectedRowsError: the branch has another row, or lacks it.
            pymysql.Error: the server did not answer.
        """
        if self.key:
            sample = self._sample(batches)
            while rows := list(islice(sample, _ROWS_AT_ONCE)):
                self._compare_by_key(session, rows)
        elif self.numbered:
            self._compare_first(session, batches[0].slice(0, 1))

    def _sample(self, batches: Sequence[pa.RecordBatch]) -> Iterator[Row]:
        rows = sum(batch.num_rows for batch in batches)
        row_bytes = max(sum(batch.nbytes for batch in batches) // rows, 1)
        wanted = rows if self.whole else min(rows, SAMPLE_ROWS, max(_SAMPLE_BYTES // row_bytes, 1))
        at, start = np.linspace(0, rows - 1, wanted).astype(np.int64), 0
        for batch in batches:
            mine = at[(at >= start) & (at < start + batch.num_rows)] - start
            for some in range(0, len(mine), _ROWS_AT_ONCE):
                yield from self._values(batch.take(pa.array(mine[some : some + _ROWS_AT_ONCE])))
            start += batch.num_rows

    def _compare_by_key(self, session: Session, sent: Sequence[Row]) -> None:
        names = [plan.column for plan in self.key]
        places = [self.plans.index(plan) for plan in self.key]
        one = " AND ".join(f"{quote(name)} = %s" for name in names)
        keys = [tuple(row[place] for place in places) for row in sent]
        found = self._read(
            session,
            " OR ".join([f"({one})"] * len(keys)),
            [value for key in keys for value in key],
        )
        stored = {tuple(row[place] for place in places): row for row in found}
        for key, row in zip(keys, sent, strict=True):
            self._compare(row, stored.get(key))

    def _compare_first(self, session: Session, sample: pa.RecordBatch) -> None:
        # none if a trigger has numbered the row
        first = f"{quote(self.numbered)} = LAST_INSERT_ID() LIMIT %s"
        for stored in self._read(session, first, (1,)):
            self._compare(self._values(sample)[0], stored)

    def _read(self, session: Session, where: str, arguments: Sequence[Any]) -> list[Row]:
        columns = ", ".join(map(_selected, self.plans))
        found = session.rows(f"SELECT {columns} FROM {self.table} WHERE {where}", arguments)
        readers = [_READERS.get(plan.encoding) for plan in self.plans]
        return [
            tuple(
                value if reader is None or value is None else reader(value)
                for reader, value in zip(readers, row, strict=True)
            )
            for row in found
        ]

    def _values(self, sample: pa.RecordBatch) -> list[Row]:
        columns = [_sent(sample, plan) for plan in self.plans]
        return list(zip(*columns, strict=True))

    def _compare(self, sent: Row, stored: Row | None) -> None:
        if sent == stored:
            return
        columns = [plan.column for plan in self.plans]
        row = shown(dict(zip(columns, sent, strict=True)))
        if stored is None:
            raise _changed(f"{self.table} has no such row as it was sent: {row}")
        changed = "; ".join(
            f"{column!r} holds {shown(is_now)} instead of {shown(was)}"
            for column, was, is_now in zip(columns, sent, stored, strict=True)
            if was != is_now
        )
        raise _changed(f"{self.table} would have stored another row than was sent: {changed}")


def _changed(what: str) -> RejectedRowsError:
    return RejectedRowsError(
        f"{what}.",
        remedy="find what changes the row (SHOW TRIGGERS names the triggers of the table): drop "
        "it, or leave those columns out of the rows.",
    )


def _selected(plan: ColumnPlan) -> str:
    # a FLOAT is shown with six digits; the sum is a DOUBLE
    return quote(plan.column) + " + 0e0" * (plan.encoding is Encoding.FLOAT)


def _sent(sample: pa.RecordBatch, plan: ColumnPlan) -> list[Any]:
    values: list[Any] = converted(sample.column(plan.field), plan).to_pylist()
    if plan.encoding is Encoding.JSON:
        return [None if value is None else value_of(value) for value in values]
    if plan.encoding is Encoding.TIME:
        return [None if value is None else _since_midnight(value) for value in values]
    return values


def _since_midnight(value: datetime.time) -> datetime.timedelta:
    midnight = datetime.datetime.combine(datetime.date.min, datetime.time())
    return datetime.datetime.combine(datetime.date.min, value) - midnight


def _date(value: Any) -> Any:
    """A date in a DATETIME column is its midnight."""
    is_midnight = isinstance(value, datetime.datetime) and value.time() == datetime.time()
    return value.date() if is_midnight else value


_READERS: Mapping[Encoding, Callable[[Any], Any]] = {
    Encoding.JSON: value_of,
    Encoding.BIT: lambda value: int.from_bytes(value),
    Encoding.DATE: _date,
}
