"""The target table as the server describes it."""

from __future__ import annotations

from dataclasses import dataclass

from twophase.sinks.mysql.client.identifiers import qualified
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.columns import Column, read_columns

_TABLE = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_UNIQUE_KEYS = (
    "SELECT COUNT(*) FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0"
)
_FOREIGN_KEYS = (
    "SELECT COUNT(*) FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND CONSTRAINT_TYPE = 'FOREIGN KEY'"
)


@dataclass(frozen=True)
class Table:
    """The target.

    Attributes:
        schema: as the server spells it.
        name: as the server spells it.
        kind: `BASE TABLE`, or a kind that branches cannot write to.
        engine: storage engine.
        columns: in the table's order.
        has_unique_key: two rows can conflict.
        has_foreign_key: a row can wait for a row of another table.
    """

    schema: str
    name: str
    kind: str
    engine: str
    columns: tuple[Column, ...]
    has_unique_key: bool
    has_foreign_key: bool

    @property
    def sql(self) -> str:
        """The quoted name."""
        return qualified(self.schema, self.name)


def read_table(session: Session, schema: str, name: str) -> Table | None:
    """Describe a table; return None if it does not exist or this account cannot see it."""
    found = session.rows(_TABLE, (schema, name))
    if not found:
        return None
    real_schema, real_name, kind, engine = found[0]
    return Table(
        real_schema,
        real_name,
        kind,
        engine or "",
        read_columns(session, schema, name),
        has_unique_key=_count(session, _UNIQUE_KEYS, schema, name) > 0,
        has_foreign_key=_count(session, _FOREIGN_KEYS, schema, name) > 0,
    )


def _count(session: Session, statement: str, schema: str, name: str) -> int:
    [(count,)] = session.rows(statement, (schema, name))
    return int(count)
