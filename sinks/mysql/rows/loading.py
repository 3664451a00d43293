"""Loads rows into the open branch, and checks that all of them arrived unchanged.

`LOAD DATA LOCAL` implies IGNORE, even in strict mode: it skips duplicates, clips numbers, truncates
strings and turns NULL into 0 without an error (H41, HD8). Only two numbers of its reply show this:
rows stored and warnings raised. What no reply shows, such as the work of a trigger, the rows that
are read back do (`read_back`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from twophase.errors import RejectedRowsError
from twophase.internals.redaction import shown
from twophase.sinks.mysql.client.codes import (
    DUPLICATE_ENTRY,
    NO_DEFAULT,
    NO_PARTITION,
    NUMBERS_USED_UP,
    ROW_TOO_LONG,
    VALUE_TOO_LONG,
)
from twophase.sinks.mysql.client.identifiers import quote
from twophase.sinks.mysql.client.session import Done, Session
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.encoding import Encoded, encode
from twophase.sinks.mysql.rows.json_documents import check_documents
from twophase.sinks.mysql.rows.read_back import ReadBack
from twophase.sinks.mysql.rows.text_formats import INSERT_VALUES, LOAD_DATA
from twophase.sinks.mysql.rows.types import ColumnPlan

_WARNINGS_SHOWN = 5
_FOREIGN_KEY = 1452
_COMMAND_BYTES = 1
LARGER_TYPE = (
    "give the AUTO_INCREMENT column a larger type, such as BIGINT UNSIGNED (ALTER TABLE, MODIFY)."
)
REFERRING_ROWS = (
    "if a row refers to another one of the same micro-batch, have one task write both, the one "
    "that is referred to first: coalesce(1) and sortWithinPartitions before the sink; otherwise "
    "write the rows that are referred to first."
)
# The cheapest to append the end of a row to, then those of bounded width.
_CHEAP_LAST = (
    Encoding.BOOL,
    Encoding.PLAIN,
    Encoding.DATE,
    Encoding.TIME,
    Encoding.TIMESTAMP,
    Encoding.FLOAT,
)
# A LOAD DATA field is text: these columns take it through a user variable.
_NUMBER = "CAST({} AS UNSIGNED)"
_THROUGH = {
    Encoding.BINARY: "UNHEX({})",
    Encoding.BIT: _NUMBER,
    Encoding.ENUM: _NUMBER,
    Encoding.SET: _NUMBER,
}


@dataclass(frozen=True)
class Loader(ABC):
    """Loads rows into the target within the session's open branch.

    Attributes:
        table: the target's quoted name.
        plans: the plan of each column.
        read_back: reads rows back.
    """

    table: str
    plans: tuple[ColumnPlan, ...]
    read_back: ReadBack

    @abstractmethod
    def load(self, session: Session, batches: Sequence[pa.RecordBatch]) -> None:
        """Load all rows of `batches`.

        Raises:
            RejectedRowsError: not every row arrived unchanged.
            pymysql.Error: the statement failed.
        """

    def _check(
        self, session: Session, done: Done, rows: int, batches: Sequence[pa.RecordBatch]
    ) -> None:
        if done.affected == rows and done.warnings == 0:
            self.read_back.check(session, batches)
            return
        warnings = session.rows(f"SHOW WARNINGS LIMIT {_WARNINGS_SHOWN}")
        texts = "; ".join(f"{shown(text)} ({code})" for _, code, text in warnings)
        first = _row_of_warning(warnings[0][2], batches) if warnings else ""
        raise RejectedRowsError(
            f"{self.table} would have stored {done.affected} of {rows} rows, "
            f"with {done.warnings} warnings: "
            f"{texts or 'none shown'}.{first}",
            remedy=remedy_of({int(code) for _, code, _ in warnings}, self.table),
        )


@dataclass(frozen=True)
class LoadDataLoader(Loader):
    """LOAD DATA LOCAL from memory."""

    def load(self, session: Session, batches: Sequence[pa.RecordBatch]) -> None:
        """See `Loader.load`."""
        plans = _cheap_last(self.plans)
        encoded = [encode(batch, plans, LOAD_DATA) for batch in batches]
        check_documents(session, batches, plans)
        done = session.load(load_data_sql(self.table, plans), [piece.data for piece in encoded])
        self._check(session, done, sum(piece.rows for piece in encoded), batches)


@dataclass(frozen=True)
class InsertLoader(Loader):
    """Multi-row INSERT, for servers that forbid LOCAL.

    Attributes:
        statement_bytes: how long a statement of several rows may be, roughly.
        packet_bytes: a statement has to be shorter (`max_allowed_packet`).
    """

    statement_bytes: int = 1_000_000
    packet_bytes: int = 4_000_000

    def load(self, session: Session, batches: Sequence[pa.RecordBatch]) -> None:
        """See `Loader.load`."""
        names = ", ".join(quote(plan.column) for plan in self.plans)
        head = f"INSERT INTO {self.table} ({names}) VALUES ".encode()
        for batch in batches:
            start = 0
            encoded = encode(batch, self.plans, INSERT_VALUES)
            check_documents(session, [batch], self.plans)
            for rows, values in statements(encoded, self.statement_bytes):
                statement = head + values
                if len(statement) + _COMMAND_BYTES >= self.packet_bytes:
                    self._reject_long(len(statement), batch.slice(start, 1))
                done = session.run_bytes(statement)
                self._check(session, done, rows, [batch.slice(start, rows)])
                start += rows

    def _reject_long(self, size: int, row: pa.RecordBatch) -> NoReturn:
        raise RejectedRowsError(
            f"{self.table}: a row makes a statement of {size:,} bytes, and the server takes "
            f"less than {self.packet_bytes:,} (max_allowed_packet): {shown(row.to_pylist()[0])}.",
            remedy="raise max_allowed_packet, allow LOAD DATA LOCAL (local_infile), which has no "
            "such limit, or shorten the row. Then start the job again.",
        )


def load_data_sql(table: str, plans: Sequence[ColumnPlan]) -> str:
    """Return the LOAD DATA statement, with `{file}` for the file's name.

    The separators are in hex, which means the same whatever `sql_mode` does with backslashes.
    """
    fields, through = [], []
    for number, plan in enumerate(plans):
        if plan.encoding in _THROUGH:
            fields.append(f"@c{number}")
            through.append(
                f"{quote(plan.column)} = {_THROUGH[plan.encoding].format(f'@c{number}')}"
            )
        else:
            fields.append(quote(plan.column))
    return (
        f"LOAD DATA LOCAL INFILE {{file}} INTO TABLE {table} CHARACTER SET utf8mb4"
        f" FIELDS TERMINATED BY X'09' ESCAPED BY X'5C' LINES TERMINATED BY X'0A'"
        f" ({', '.join(fields)})" + (f" SET {', '.join(through)}" if through else "")
    )


def _cheap_last(plans: Sequence[ColumnPlan]) -> list[ColumnPlan]:
    """Return the columns with a cheap one at the end, where the end of the row is appended."""
    ranks = {encoding: rank for rank, encoding in enumerate(_CHEAP_LAST)}
    last = min(plans, key=lambda plan: ranks.get(plan.encoding, len(ranks)))
    return [*(plan for plan in plans if plan is not last), last]


def statements(encoded: Encoded, limit: int) -> Iterator[tuple[int, bytes]]:
    """Split rows into chunks of about `limit` bytes, each with its rows and without the last comma.

    A row that is longer is a chunk of its own.
    """
    start = 0
    while start < encoded.rows:
        stop = int(encoded.ends.searchsorted(encoded.ends[start] + limit, side="right")) - 1
        stop = min(max(stop, start + 1), encoded.rows)
        yield stop - start, bytes(encoded.data[encoded.ends[start] : encoded.ends[stop] - 1])
        start = stop


def _row_of_warning(text: str, batches: Sequence[pa.RecordBatch]) -> str:
    found = re.search(r"at row (\d+)", text)
    if found is None:
        return ""
    row = int(found[1]) - 1
    for batch in batches:
        if row < batch.num_rows:
            return f" The first such row: {shown(batch.slice(row, 1).to_pylist()[0])}."
        row -= batch.num_rows
    return ""


def remedy_of(codes: set[int], table: str) -> str:
    """Return what to do about rows that the server has refused.

    Args:
        codes: its error numbers.
        table: the target's quoted name.
    """
    if _FOREIGN_KEY in codes:
        return REFERRING_ROWS
    if DUPLICATE_ENTRY in codes:
        return (
            "remove the duplicates before the sink, or the rows that are in the table already. If "
            f"the key is of the AUTO_INCREMENT column, no higher number is left: {LARGER_TYPE}"
        )
    if NUMBERS_USED_UP in codes:
        return LARGER_TYPE
    if NO_PARTITION in codes:
        return (
            f"add the partition to {table} (ALTER TABLE, ADD PARTITION or REORGANIZE PARTITION), "
            "or drop such rows before the sink."
        )
    if NO_DEFAULT in codes:
        return (
            "have the rows fill that column, or give it a default. If the server computes it, use "
            "`load=insert`: LOAD DATA of MySQL takes no geometry that it computes and that is NOT "
            "NULL."
        )
    if VALUE_TOO_LONG in codes:
        return "raise max_allowed_packet, or shorten the value."
    if ROW_TOO_LONG in codes:
        return (
            f"ALTER TABLE {table} ROW_FORMAT = DYNAMIC; this keeps long values outside of the row. "
            "If that is its format already, shorten the row, or give the table fewer columns."
        )
    return (
        "correct the rows, drop them before the sink, or widen the column; one that they lack "
        "needs another default."
    )
