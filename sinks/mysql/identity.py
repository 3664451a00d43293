"""Which table the proofs are of: the ledger is beside the table and says nothing of it (docs/decisions/0026).

    twophase_target     per job and sink: the table's name and when it was made

`information_schema.TABLES.CREATE_TIME` changes when a table is dropped and made anew, but also when it is rebuilt: ALTER,
OPTIMIZE, CREATE INDEX. TRUNCATE and an exchange of partitions keep it, RENAME does on MySQL. So a table of the same name and
another time is another one if it is empty although rows were committed. One of another name is the same one if it has the
same time and the old name is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pymysql

from twophase.sinks.mysql.client.codes import DENIED, NO_SUCH_TABLE, code_of
from twophase.sinks.mysql.client.connection import Session
from twophase.sinks.mysql.client.identifiers import qualified

_NOT_OURS = DENIED | {NO_SUCH_TABLE}
"""There is no such book for this account; `open` has said so."""


@dataclass(frozen=True)
class TableIdentity:
    """A table, and something of its creation.

    Attributes:
        schema: as the server spells it.
        name: as the server spells it.
        created: when it was made or rebuilt, as the server says it.
    """

    schema: str
    name: str
    created: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name} (made at {self.created})"


def read_identity(session: Session, schema: str, name: str) -> TableIdentity | None:
    """The table of a name as it is now; None if there is none."""
    found = session.rows(
        "SELECT TABLE_SCHEMA, TABLE_NAME, CREATE_TIME FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (schema, name),
    )
    return TableIdentity(str(found[0][0]), str(found[0][1]), str(found[0][2])) if found else None


def why_another(session: Session, known: TableIdentity, now: TableIdentity) -> str:
    """Why a table is not the one that was known, which had rows committed; empty if it is that one."""
    if known == now:
        return ""
    if (known.schema, known.name) != (now.schema, now.name):
        renamed = known.created == now.created and read_identity(session, known.schema, known.name) is None
        return "" if renamed else f"its rows were committed to {known}, and {now} is another table"
    if _has_rows(session, now):
        return ""
    return f"its rows were committed to {known} and {now} is empty: it was dropped and made anew, or emptied while it was rebuilt"


def _has_rows(session: Session, table: TableIdentity) -> bool:
    """Whether it shows a row; where we may not look, it is taken for empty."""
    try:
        return bool(session.rows(f"SELECT 1 FROM {qualified(table.schema, table.name)} LIMIT 1"))
    except pymysql.Error as error:
        if code_of(error) in DENIED:
            return False
        raise


@dataclass(frozen=True)
class TargetTable:
    """The table that remembers the target of each job and sink. Where an older version's account may not make it, there is none.

    Attributes:
        schema: of the bookkeeping tables.
    """

    schema: str

    def read(self, session: Session, job: str, sink: str) -> TableIdentity | None:
        """What the proofs of a job and sink are of; None if nobody has said."""
        try:
            found = session.rows(
                f"SELECT table_schema_name, table_name, created FROM {self._table} WHERE job = %s AND sink = %s",
                (job, sink),
            )
        except pymysql.Error as error:
            if code_of(error) not in _NOT_OURS:
                raise
            return None
        return TableIdentity(*map(str, found[0])) if found else None

    def write(self, session: Session, job: str, sink: str, table: TableIdentity) -> None:
        """Let the proofs be of a table from now on."""
        try:
            session.run(
                f"INSERT INTO {self._table} (job, sink, table_schema_name, table_name, created) VALUES (%s, %s, %s, %s, %s)"
                " ON DUPLICATE KEY UPDATE table_schema_name = VALUES(table_schema_name), table_name = VALUES(table_name),"
                " created = VALUES(created)",
                (job, sink, table.schema, table.name, table.created),
            )
        except pymysql.Error as error:
            if code_of(error) not in _NOT_OURS:
                raise

    @property
    def _table(self) -> str:
        return qualified(self.schema, "twophase_target")
