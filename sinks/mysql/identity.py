"""The identity of the table that the proofs belong to (docs/decisions/0026).

`information_schema.TABLES.CREATE_TIME` changes when a table is dropped and recreated, but also when
it is rebuilt: ALTER, OPTIMIZE, CREATE INDEX. TRUNCATE and EXCHANGE PARTITION keep it; so does
RENAME on MySQL. So a table with the same name and a different time is another table if it is empty
although rows were committed. A table with a different name is the same table if it has the same
time and the old name is gone.

A table that its consumer has emptied looks as new once it is rebuilt. Nothing tells them apart, so
who knows it says so: `ACCEPTED` in place of the time (`TargetTable.accept_sql`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pymysql

from twophase.errors import TargetUnreachableError
from twophase.sinks.mysql.client.codes import DENIED, LOCK_WAIT_TIMEOUT, code_of
from twophase.sinks.mysql.client.identifiers import qualified
from twophase.sinks.mysql.client.session import Session

ACCEPTED = "accepted"
"""In place of the creation time: the table of that name is the right one, whatever its time."""


@dataclass(frozen=True)
class TableIdentity:
    """A table's name and creation time.

    Attributes:
        schema: as the server spells it.
        name: as the server spells it.
        created: when it was created or rebuilt, as the server reports it; or `ACCEPTED`.
    """

    schema: str
    name: str
    created: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name} (created at {self.created})"


def read_identity(session: Session, schema: str, name: str) -> TableIdentity | None:
    """Return the current identity of the table with this name; None if there is no such table."""
    found = session.rows(
        "SELECT TABLE_SCHEMA, TABLE_NAME, CREATE_TIME FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (schema, name),
    )
    return TableIdentity(str(found[0][0]), str(found[0][1]), str(found[0][2])) if found else None


def why_another(session: Session, known: TableIdentity, now: TableIdentity, accept_sql: str) -> str:
    """Return why a table is not the known one, which had rows committed to it; empty if it is.

    Args:
        session: the driver's.
        known: as recorded.
        now: the table as it is.
        accept_sql: says that an empty table is the known one.

    Raises:
        TargetUnreachableError: it cannot be told, since somebody keeps the table locked.
    """
    if known == now:
        return ""
    if (known.schema, known.name) != (now.schema, now.name):
        renamed = (
            known.created == now.created
            and read_identity(session, known.schema, known.name) is None
        )
        return "" if renamed else f"its rows were committed to {known}, and {now} is another table"
    if known.created == ACCEPTED or _has_rows(session, now):
        return ""
    return (
        f"its rows were committed to {known} and {now} is empty: it was dropped and recreated, or "
        "rebuilt (ALTER, OPTIMIZE) when it was empty. Only in the latter case it is the same, "
        f"after this statement: {accept_sql}"
    )


def _has_rows(session: Session, table: TableIdentity) -> bool:
    """Return whether the table has a row that we may read."""
    try:
        return bool(session.rows(f"SELECT 1 FROM {qualified(table.schema, table.name)} LIMIT 1"))
    except pymysql.Error as error:
        if code_of(error) in DENIED:
            return False
        if code_of(error) == LOCK_WAIT_TIMEOUT:
            raise TargetUnreachableError(
                f"{table} was rebuilt or made again since rows were committed to it, and which of "
                "the two cannot be told: somebody's statement keeps it locked, most likely DDL "
                "that waits for a prepared branch of this job.",
                remedy="find that statement (SHOW PROCESSLIST: it waits for a metadata lock) and "
                "end it (KILL <id>): the job goes on by itself. Then repeat the statement.",
            ) from error
        raise
