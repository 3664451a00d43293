"""The target table as the server describes it: at the start, and again in each branch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from twophase.sinks.mysql.client.identifiers import qualified
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.columns import COLUMN_FIELDS, Column

_WIDTH = COLUMN_FIELDS.count(",") + 1
_NAMED = "TABLE_SCHEMA = %s AND TABLE_NAME = %s"


def _part(kind: str, order: str, fields: str, source: str) -> str:
    padding = ", NULL" * (_WIDTH - fields.count(",") - 1)
    return f"SELECT '{kind}', {order}, {fields}{padding} FROM {source}"


_DESCRIPTION = " UNION ALL ".join(
    (
        _part(
            "table",
            "0",
            "TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE",
            f"information_schema.TABLES WHERE {_NAMED}",
        ),
        _part(
            "column",
            "ORDINAL_POSITION",
            COLUMN_FIELDS,
            f"information_schema.COLUMNS WHERE {_NAMED}",
        ),
        _part(
            "key",
            "SEQ_IN_INDEX",
            "INDEX_NAME, COLUMN_NAME",
            f"information_schema.STATISTICS WHERE {_NAMED} AND NON_UNIQUE = 0",
        ),
        _part(
            "trigger",
            "ACTION_ORDER",
            "TRIGGER_SCHEMA, TRIGGER_NAME, ACTION_TIMING, ACTION_STATEMENT",
            "information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s"
            " AND EVENT_OBJECT_TABLE = %s AND EVENT_MANIPULATION = 'INSERT'",
        ),
    )
)
_FOREIGN_KEYS = (
    "SELECT COUNT(*) FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND CONSTRAINT_TYPE = 'FOREIGN KEY'"
)


@dataclass(frozen=True)
class Trigger:
    """A trigger that runs for each row that is inserted.

    Attributes:
        schema: of the trigger.
        name: as the server spells it.
        timing: `BEFORE` or `AFTER`.
        body: its statement.
    """

    schema: str
    name: str
    timing: str
    body: str

    def __str__(self) -> str:
        return f"{self.timing} INSERT trigger {qualified(self.schema, self.name)}"


@dataclass(frozen=True)
class Table:
    """The target.

    Attributes:
        schema: as the server spells it.
        name: as the server spells it.
        kind: `BASE TABLE`, or a kind that branches cannot write to.
        engine: storage engine.
        columns: in the table's order.
        unique_keys: the names of the columns of each; None for an expression.
        triggers: those that this account may see, in their order.
    """

    schema: str
    name: str
    kind: str
    engine: str
    columns: tuple[Column, ...]
    unique_keys: tuple[tuple[str | None, ...], ...] = ()
    triggers: tuple[Trigger, ...] = ()

    @property
    def sql(self) -> str:
        """The quoted name."""
        return qualified(self.schema, self.name)

    def changes(self, now: Table) -> Iterator[str]:
        """Yield how the table as it is now differs from this description of it."""
        if (self.kind, self.engine) != (now.kind, now.engine):
            yield f"it is a {now.kind} of {now.engine} and was a {self.kind} of {self.engine}"
        before = {column.name: column for column in self.columns}
        after = {column.name: column for column in now.columns}
        for name in [*before, *(name for name in after if name not in before)]:
            if before.get(name) != after.get(name):
                was, is_now = (_shape(columns.get(name)) for columns in (before, after))
                yield f"column {name!r} is {is_now} and was {was}"
        if self.unique_keys != now.unique_keys:
            yield "its unique keys are others"
        if self.triggers != now.triggers:
            yield f"its triggers are {', '.join(map(str, now.triggers)) or 'none'}"


def read_table(session: Session, schema: str, name: str) -> Table | None:
    """Describe a table; return None if it does not exist or this account cannot see it."""
    return _describe(session, schema, name, _DESCRIPTION)


def read_table_locked(session: Session, table: Table) -> Table | None:
    """Describe a table as it stays until the end of the session's branch.

    The last part reads no row: it makes the statement take the table's metadata lock, before it
    reads the rest, and the branch keeps it.

    Raises:
        pymysql.Error: the table is gone, or somebody keeps it locked.
    """
    locking = f" UNION ALL {_part('', '0', 'NULL', table.sql.replace('%', '%%'))} WHERE FALSE"
    return _describe(session, table.schema, table.name, _DESCRIPTION + locking)


def has_foreign_key(session: Session, table: Table) -> bool:
    """Return whether a row can wait for a row of another table."""
    [(count,)] = session.rows(_FOREIGN_KEYS, (table.schema, table.name))
    return int(count) > 0


def _describe(session: Session, schema: str, name: str, statement: str) -> Table | None:
    found = session.rows(statement, (schema, name) * 4)
    parts = {
        kind: [row[2:] for row in sorted(rows, key=lambda row: int(row[1]))]
        for kind, rows in groupby(sorted(found, key=lambda row: str(row[0])), lambda row: row[0])
    }
    if "table" not in parts:
        return None
    keys: dict[str, list[str | None]] = {}
    for key, column, *_ in parts.get("key", ()):
        keys.setdefault(key, []).append(column)
    [(real_schema, real_name, kind, engine, *_)] = parts["table"]
    return Table(
        real_schema,
        real_name,
        kind,
        engine or "",
        tuple(map(Column.of, parts.get("column", ()))),
        # the primary key first: it is never hidden from the optimizer
        tuple(tuple(keys[key]) for key in sorted(keys, key=lambda key: (key != "PRIMARY", key))),
        tuple(Trigger(*row[:4]) for row in parts.get("trigger", ())),
    )


def _shape(column: Column | None) -> str:
    if column is None:
        return "missing"
    filled = " generated" * column.generated + " auto_increment" * column.auto_increment
    null = "" if column.nullable else " not null"
    return f"{column.column_type} {column.collation or ''}".strip() + null + filled
