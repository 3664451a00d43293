"""Finds out whether another task of the same attempt holds the lock that a task waits for.

A branch keeps its locks until the checkpoint is committed, which needs the branch that waits: they
wait for each other whenever the attempt is repeated. The server does not tell an ordinary account
who holds a lock. But READ UNCOMMITTED shows the rows of open branches, compared as the table
compares them: a row with the same unique key, or the row that a foreign key within the table refers
to, that is there uncommitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from twophase.errors import RejectedRowsError
from twophase.ids import TransactionId
from twophase.internals.redaction import shown
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.session import Row, Session
from twophase.sinks.mysql.client.session_locks import SessionLocks
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.rows.encoding import encode
from twophase.sinks.mysql.rows.loading import REFERRING_ROWS, statements
from twophase.sinks.mysql.rows.text_formats import INSERT_VALUES
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.xid import Owner

_QUERY_BYTES = 200_000
# Prefixes and expressions compare something else than a column, and are left out.
UNIQUE_KEYS = (
    "SELECT INDEX_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX SEPARATOR '\\n'),"
    " GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX SEPARATOR '\\n')"
    " FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 GROUP BY INDEX_NAME"
    " HAVING COUNT(*) = COUNT(COLUMN_NAME) AND COUNT(SUB_PART) = 0"
)
REFERRING_KEYS = (
    "SELECT CONSTRAINT_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY ORDINAL_POSITION SEPARATOR '\\n'),"
    " GROUP_CONCAT(REFERENCED_COLUMN_NAME ORDER BY ORDINAL_POSITION SEPARATOR '\\n')"
    " FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " AND REFERENCED_TABLE_SCHEMA = TABLE_SCHEMA AND REFERENCED_TABLE_NAME = TABLE_NAME"
    " GROUP BY CONSTRAINT_NAME"
)


@dataclass(frozen=True)
class LockConflicts:
    """Looks for the rows of other tasks.

    Attributes:
        schema: of the target.
        table: its name.
        plans: the columns that the rows fill.
        owner: the job and sink.
        metadata: the metadata tables.
    """

    schema: str
    table: str
    plans: tuple[ColumnPlan, ...]
    owner: Owner
    metadata: MetadataTables

    def find(
        self,
        session: Session,
        transaction: TransactionId,
        batches: Sequence[pa.RecordBatch],
        left: Collection[int],
    ) -> RejectedRowsError | None:
        """Return the error for rows that cannot be written beside those of another task.

        Args:
            session: one without a branch.
            transaction: of the attempt.
            batches: the rows that waited.
            left: the task's own session, if it does not end: MySQL 8.0.12 lets nobody end one that
                waits for the row that a foreign key refers to. Its rows are there too.
        """
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        if not self._has_siblings(session, transaction, left):
            return None
        for name, columns, found_by, duplicate in self._keys(session):
            if left and duplicate:
                continue
            for sql in self._queries(columns, found_by, batches):
                if rows := self._uncommitted(session, sql):
                    return self._error(transaction, name, rows[0], duplicate=duplicate)
        return None

    def _uncommitted(self, session: Session, sql: str) -> list[Row]:
        found = session.rows(sql)
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        committed = {*session.rows(sql)} if found else set()
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        return [row for row in found if row not in committed]

    def _has_siblings(
        self, session: Session, transaction: TransactionId, left: Collection[int]
    ) -> bool:
        """Return whether another branch of the attempt is open, or prepared."""
        lineage, checkpoint = transaction.lineage, transaction.checkpoint
        owner, attempt = self.owner, transaction.attempt
        written = self.metadata.ledger_of(session, owner.job, owner.sink, lineage, checkpoint)
        prepared = any(row[:2] == (attempt.generation, attempt.counter) for row in written)
        return prepared or bool(SessionLocks(owner).holders(session) - {*left})

    def _keys(self, session: Session) -> Iterator[tuple[str, list[ColumnPlan], list[str], bool]]:
        """Yield each key by which rows meet: its name, the columns of our rows, those in the table
        that they are compared with, and whether rows with the same values are duplicates.
        """
        plans = {plan.column.lower(): plan for plan in self.plans}
        for statement, duplicate in ((UNIQUE_KEYS, True), (REFERRING_KEYS, False)):
            for name, ours, theirs in session.rows(statement, (self.schema, self.table)):
                columns = [plans.get(column.lower()) for column in str(ours).split("\n")]
                known = [plan for plan in columns if plan is not None]
                if len(known) == len(columns):
                    yield str(name), known, str(theirs).split("\n"), duplicate

    def _queries(
        self, plans: Sequence[ColumnPlan], columns: Sequence[str], batches: Sequence[pa.RecordBatch]
    ) -> Iterator[str]:
        names = ", ".join(map(quote, columns))
        for batch in batches:
            for _, values in statements(encode(batch, plans, INSERT_VALUES), _QUERY_BYTES):
                yield (
                    f"SELECT DISTINCT {names} FROM {qualified(self.schema, self.table)}"
                    f" WHERE ({names}) IN ({values.decode()})"
                )

    def _error(
        self, transaction: TransactionId, key: str, row: Row, *, duplicate: bool
    ) -> RejectedRowsError:
        where = f"{qualified(self.schema, self.table)}, key {quote(key)}: {shown(list(row))}"
        if duplicate:
            return RejectedRowsError(
                f"{transaction}: two tasks of one attempt have rows with the same key, and the one "
                f"waits for the other's lock. {where}.",
                remedy="drop duplicates before the sink, as the table compares them (with its "
                "collation): it would not take the second row.",
            )
        return RejectedRowsError(
            f"{transaction}: a row refers to one that another task of the same attempt writes, and "
            f"waits for its lock. {where}.",
            remedy=REFERRING_ROWS,
        )
