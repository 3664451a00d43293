"""Finds the row whose lock a task waits for.

A branch keeps its locks until the checkpoint is committed, which needs the branch that waits: two
tasks of an attempt wait for each other whenever it is repeated. The server does not tell an
ordinary account who holds a lock. But READ UNCOMMITTED shows the rows of open transactions,
compared as the table compares them: a row with the same unique key, or the row that a foreign key
refers to, that is there uncommitted. Whose it is, only a row that names its checkpoint tells; any
other may be a stranger's, who will commit or roll back: both causes are named, and the attempt is
repeated. What cannot be seen like this, such as a key of generated columns or what a trigger
writes, is named in what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from twophase.errors import DeclinedError, RejectedRowsError
from twophase.ids import Subtask, TransactionId
from twophase.internals.redaction import shown
from twophase.sinks.mysql.checkpoint_column import value_of
from twophase.sinks.mysql.client.codes import DENIED, LOCKS, code_of
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.session import Row, Session
from twophase.sinks.mysql.client.session_locks import SessionLocks
from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.rows.encoding import encode
from twophase.sinks.mysql.rows.loading import REFERRING_ROWS, statements
from twophase.sinks.mysql.rows.text_formats import INSERT_VALUES
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.table import Table
from twophase.sinks.mysql.xid import Owner

_QUERY_BYTES = 200_000
_WHOSE = (
    "another task of the same attempt has written it, or somebody else, whose transaction is open"
)
_OF_OTHERS = (
    "If not, find whose transaction is open (information_schema.INNODB_TRX, XA RECOVER) and end "
    "it: the next attempt goes on."
)
_MEETINGS = 3
"""How often in a row a checkpoint may meet such a row while it has tasks that may have written it:
a stranger has the lock waits of as many attempts, and the pauses between them, to end.
"""
# An expression has no column; 0 is a whole column.
UNIQUE_KEYS = (
    "SELECT INDEX_NAME, COALESCE(COLUMN_NAME, ''), COALESCE(SUB_PART, 0)"
    " FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0"
    " ORDER BY INDEX_NAME, SEQ_IN_INDEX"
)
REFERRING_KEYS = (
    "SELECT CONSTRAINT_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, COLUMN_NAME,"
    " REFERENCED_COLUMN_NAME"
    " FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY CONSTRAINT_NAME, ORDINAL_POSITION"
)


@dataclass(frozen=True)
class Key:
    """A key by which rows meet.

    Attributes:
        name: of the index or the constraint.
        table: the quoted name of the table with the rows that ours meet.
        plans: the columns that our rows fill.
        compared: what each is compared with there, in SQL.
        lengths: of a prefix, in characters or bytes; 0 for a whole column.
        defaulted: columns in which our rows get a constant, quoted, with the constant.
        marked: the column in which a row names its checkpoint, quoted; empty if there is none.
    """

    name: str
    table: str
    plans: tuple[ColumnPlan, ...]
    compared: tuple[str, ...]
    lengths: tuple[int, ...] = ()
    defaulted: tuple[tuple[str, str], ...] = ()
    marked: str = ""

    def queries(self, batches: Sequence[pa.RecordBatch]) -> Iterator[str]:
        """Yield queries for the rows that these rows meet, the mark in front. A prefix or a FLOAT
        takes the whole table's time: no index serves it.
        """
        defaulted = [name for name, _ in self.defaulted]
        names = ", ".join((self.marked or "NULL", *self.compared, *defaulted))
        constant = "".join(f" AND {name} = {value}" for name, value in self.defaulted)
        asked = f"SELECT DISTINCT {names} FROM {self.table} WHERE "
        if not self.plans:
            yield f"{asked}TRUE{constant}"
            return
        for batch in map(self._cut, batches):
            for _, values in statements(encode(batch, self.plans, INSERT_VALUES), _QUERY_BYTES):
                yield f"{asked}({', '.join(self.compared)}) IN ({values.decode()}){constant}"

    def _cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with prefixes in place of values."""
        for plan, length in zip(self.plans, self.lengths, strict=False):
            at = batch.schema.get_field_index(plan.field)
            if length:
                is_binary = pa.types.is_binary(plan.type) or pa.types.is_large_binary(plan.type)
                cut = pc.binary_slice if is_binary else pc.utf8_slice_codeunits
                batch = batch.set_column(at, batch.schema.field(at), cut(batch[at], 0, length))
        return batch


@dataclass(frozen=True)
class Met:
    """A row that ours meet, and that is not committed.

    Attributes:
        key: by which they meet.
        row: its values in the key.
        is_ours: a task of the same attempt has written it; False if that is not known.
    """

    key: Key
    row: Row
    is_ours: bool

    def __str__(self) -> str:
        return f"{self.key.table}, key {quote(self.key.name)}: {shown(list(self.row))}."


@dataclass(frozen=True)
class LockConflicts:
    """Looks for the rows of other tasks.

    Attributes:
        table: the target.
        plans: the columns that the rows fill.
        owner: the job and sink.
        metadata: the metadata tables.
        checkpoint_column: the column that names each row's checkpoint, if there is one.
    """

    table: Table
    plans: tuple[ColumnPlan, ...]
    owner: Owner
    metadata: MetadataTables
    checkpoint_column: str | None = None

    def find(
        self,
        session: Session,
        transaction: TransactionId,
        subtask: Subtask,
        batches: Sequence[pa.RecordBatch],
        left: Collection[int],
        declined: DeclinedError,
    ) -> DeclinedError:
        """Return the error for rows that cannot be written beside those of another task.

        Args:
            session: one without a branch.
            transaction: of the attempt.
            subtask: the task that waited.
            batches: the rows that waited.
            left: the task's own session, if it does not end: MySQL 8.0.12 lets nobody end one that
                waits for the row that a foreign key refers to. Its rows are there too.
            declined: the error if nothing is found; with what to do if something may be the cause.
        """
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        written = self._written(session, transaction)
        if self._was_tried_before(session, subtask, written, left):
            return DeclinedError(
                f"{declined.what} An earlier attempt of the same task, whose worker was lost, has "
                "written its rows.",
                remedy="the next attempt at the checkpoint aborts them before it writes.",
            )
        suspects: list[str] = []
        has_siblings = bool(written or SessionLocks(self.owner).holders(session) - {*left})
        if has_siblings:
            for name, key in () if left else self._unique_keys(session):
                if key is None:
                    suspects.append(f"the unique key {quote(name)}, whose values the rows lack")
                elif met := self._met(session, transaction, key, batches):
                    return _duplicate(transaction, met)
            suspects += [f"the {trigger}" for trigger in self.table.triggers]
        for key in self._referring_keys(session):
            is_own = key.table == self.table.sql
            if is_own and not has_siblings:
                continue
            try:
                met = self._met(session, transaction, key, batches)
            except pymysql.Error as error:
                if code_of(error) not in DENIED:
                    raise
                suspects.append(f"the foreign key {quote(key.name)} to {key.table}")
                continue
            if met and is_own:
                return _refers_here(transaction, met)
            if met:
                return self._refers_elsewhere(session, transaction, met)
        if not suspects:
            return declined
        return DeclinedError(
            declined.what,
            remedy="another task of the same attempt may hold the lock, by way of "
            f"{' or '.join(suspects)}: have one task write all rows (coalesce(1) before the sink), "
            "or drop what is named here. If not, find who else holds the rows or the table.",
            fingerprint=declined.fingerprint,
        )

    def _met(
        self,
        session: Session,
        transaction: TransactionId,
        key: Key,
        batches: Sequence[pa.RecordBatch],
    ) -> Met | None:
        """Return a row in the table that ours meet and that is not committed; one of the attempt
        if it is known.
        """
        mark = value_of(transaction)
        for sql in key.queries(batches):
            found = session.rows(sql)
            session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            committed = {*session.rows(sql)} if found else set()
            session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            if rows := [row for row in found if row not in committed]:
                ours = [row for row in rows if row[0] == mark]
                return Met(key, (ours or rows)[0][1:], bool(ours))
        return None

    def _written(self, session: Session, transaction: TransactionId) -> set[Subtask]:
        """Return the tasks of the attempt whose branch is prepared, or is about to be."""
        lineage, checkpoint = transaction.lineage, transaction.checkpoint
        owner, attempt = self.owner, transaction.attempt
        rows = self.metadata.ledger_of(session, owner.job, owner.sink, lineage, checkpoint)
        return {
            Subtask(index, task_attempt)
            for generation, counter, index, task_attempt in rows
            if (generation, counter) == (attempt.generation, attempt.counter)
        }

    def _was_tried_before(
        self,
        session: Session,
        subtask: Subtask,
        written: Collection[Subtask],
        left: Collection[int],
    ) -> bool:
        """Return whether an earlier attempt of a task has a branch prepared, or still open.

        Spark starts a task again if its worker is lost, also after the branch was prepared.
        """
        if any(one.index == subtask.index and one != subtask for one in written):
            return True
        return SessionLocks(self.owner).holder(session, subtask.index) not in {None, *left}

    def _unique_keys(self, session: Session) -> Iterator[tuple[str, Key | None]]:
        """Yield each unique key by its name; None if the rows do not show its values.

        Without those in which two rows are never the same.
        """
        plans = {plan.column.lower(): plan for plan in self.plans}
        columns = {column.name.lower(): column for column in self.table.columns}
        found = session.rows(UNIQUE_KEYS, (self.table.schema, self.table.name))
        for name, given in groupby(found, key=itemgetter(0)):
            parts = [(part.lower(), int(length)) for _, part, length in given]
            filled = [(plans[part], length) for part, length in parts if part in plans]
            others = [columns.get(part) for part, _ in parts if part not in plans]
            if any(one is not None and _is_never_the_same(one) for one in others):
                continue
            if any(one is None or one.generated or one.default_is_expression for one in others):
                yield str(name), None
                continue
            yield (
                str(name),
                Key(
                    str(name),
                    self.table.sql,
                    tuple(_as_double(plan) for plan, _ in filled),
                    tuple(_compared(plan, length) for plan, length in filled),
                    tuple(length for _, length in filled),
                    tuple(_constant(one) for one in others if one is not None),
                    self._mark,
                ),
            )

    def _referring_keys(self, session: Session) -> Iterator[Key]:
        """Yield each foreign key whose columns the rows fill."""
        plans = {plan.column.lower(): plan for plan in self.plans}
        found = session.rows(REFERRING_KEYS, (self.table.schema, self.table.name))
        for (name, schema, table), given in groupby(found, key=itemgetter(0, 1, 2)):
            columns = [(plans.get(ours.lower()), theirs) for *_, ours, theirs in given]
            known = tuple(plan for plan, _ in columns if plan is not None)
            if len(known) == len(columns):
                compared = tuple(quote(theirs) for _, theirs in columns)
                referred = qualified(schema, table)
                mark = self._mark if referred == self.table.sql else ""
                yield Key(str(name), referred, known, compared, marked=mark)

    @property
    def _mark(self) -> str:
        return "" if self.checkpoint_column is None else quote(self.checkpoint_column)

    def _refers_elsewhere(
        self, session: Session, transaction: TransactionId, met: Met
    ) -> DeclinedError:
        """Return the error for a row of another table: perhaps of another sink of the job, perhaps
        of somebody else, who will commit.
        """
        others = self.metadata.other_sinks(session, transaction)
        what = f"{transaction}: a row refers to one that is not committed, and waits for it. {met}"
        if others:
            named = " or ".join(map(repr, others))
            what += f" The sink {named} of this job, which has rows of the checkpoint, may have "
            what += "written it."
        return DeclinedError(
            what,
            remedy=f"if another sink of the job writes to {met.key.table}, its branch is committed "
            "only with this one: write those rows with a job of their own, which is ahead of this "
            f"one, or ALTER TABLE {self.table.sql} DROP FOREIGN KEY {quote(met.key.name)}. "
            f"{_OF_OTHERS}",
            fingerprint=LOCKS,
        )


def _duplicate(transaction: TransactionId, met: Met) -> DeclinedError:
    if met.is_ours:
        return RejectedRowsError(
            f"{transaction}: two tasks of one attempt have rows with the same key, and the one "
            f"waits for the other's lock. {met}",
            remedy="drop duplicates before the sink, as the table compares them (with its "
            "collation): it would not take the second row.",
        )
    return DeclinedError(
        f"{transaction}: a row has the same key as one that is not committed, and waits for its "
        f"lock: {_WHOSE}. {met}",
        remedy="if two rows of the micro-batch have this key, drop duplicates before the sink, as "
        f"the table compares them (with its collation). {_OF_OTHERS}",
        fingerprint=LOCKS,
        limit=_MEETINGS,
    )


def _refers_here(transaction: TransactionId, met: Met) -> DeclinedError:
    if met.is_ours:
        return RejectedRowsError(
            f"{transaction}: a row refers to one that another task of the same attempt writes, and "
            f"waits for its lock. {met}",
            remedy=REFERRING_ROWS,
        )
    return DeclinedError(
        f"{transaction}: a row refers to one that is not committed, and waits for its lock: "
        f"{_WHOSE}. {met}",
        remedy=f"{REFERRING_ROWS} {_OF_OTHERS}",
        fingerprint=LOCKS,
        limit=_MEETINGS,
    )


def _is_never_the_same(column: Column) -> bool:
    """Return whether two rows without a value for a column differ in it: NULL is unlike NULL."""
    return column.auto_increment or (column.default is None and not column.generated)


def _constant(column: Column) -> tuple[str, str]:
    """Return a column and what it gets in rows without a value for it. DEFAULT knows only what is
    declared; a label is as well its number.
    """
    name = quote(column.name)
    return name, "1" if column.default_is_first_label else f"DEFAULT({name})"


def _as_double(plan: ColumnPlan) -> ColumnPlan:
    """Return the plan with the value of a FLOAT, not its digits, which would be another number."""
    return replace(plan, type=pa.float64()) if pa.types.is_float32(plan.type) else plan


def _compared(plan: ColumnPlan, length: int) -> str:
    name = quote(plan.column)
    if pa.types.is_float32(plan.type):
        return f"{name} + 0e0"
    return f"LEFT({name}, {length})" if length else name
