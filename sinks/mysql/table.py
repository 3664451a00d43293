"""The target table as the server describes it: at the start, and again in each branch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pymysql

from twophase.sinks.mysql.client.codes import DENIED, NO_SUCH_TABLE, code_of
from twophase.sinks.mysql.client.identifiers import qualified
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.columns import Column, read_columns

_TABLE = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
# The primary key first: it is never hidden from the optimizer.
_UNIQUE_KEYS = (
    "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0"
    " ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
)
_TRIGGERS = (
    "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, ACTION_TIMING, ACTION_STATEMENT"
    " FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s"
    " AND EVENT_OBJECT_TABLE = %s AND EVENT_MANIPULATION = 'INSERT'"
)
_NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")
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
        body: its statement; None if this account may not see it.
    """

    schema: str
    name: str
    timing: str
    body: str | None

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
        definition: as SHOW CREATE TABLE has it; empty if this account may not see it.
    """

    schema: str
    name: str
    kind: str
    engine: str
    columns: tuple[Column, ...]
    unique_keys: tuple[tuple[str | None, ...], ...] = ()
    triggers: tuple[Trigger, ...] = ()
    definition: str = ""

    @property
    def sql(self) -> str:
        """The quoted name."""
        return qualified(self.schema, self.name)

    @property
    def refers_to_itself(self) -> bool:
        """True if a row may refer to another row of the table, or nobody knows."""
        if not self.definition:
            return True
        name = re.escape(self.name.replace("`", "``"))
        schema = re.escape(self.schema.replace("`", "``"))
        itself = rf"REFERENCES [`\"]?(?:{schema}[`\"]?\.[`\"]?)?{name}[`\"]? \("
        return re.search(itself, self.definition, re.IGNORECASE) is not None

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
    # before the rest: with an older definition a writer describes the table once more
    definition = _definition(session, schema, name)
    found = session.rows(_TABLE, (schema, name))
    if not found:
        return None
    real_schema, real_name, kind, engine = found[0]
    keys: dict[str, list[str | None]] = {}
    for key, column in session.rows(_UNIQUE_KEYS, (schema, name)):
        keys.setdefault(key, []).append(column)
    return Table(
        real_schema,
        real_name,
        kind,
        engine or "",
        read_columns(session, schema, name),
        tuple(map(tuple, keys.values())),
        _triggers(session, _TRIGGERS, schema, name),
        definition,
    )


def read_table_locked(session: Session, table: Table) -> Table | None:
    """Describe a table as it stays until the end of the session's branch.

    The first statement reads no row of the table: it takes its metadata lock, before it reads the
    triggers, and the branch keeps it. A table with the same definition and triggers is the same:
    to ask for the columns would cost five times as much.

    Raises:
        pymysql.Error: the table is gone, or somebody keeps it locked.
    """
    locking = f"{_TRIGGERS} UNION ALL SELECT NULL, NULL, NULL, NULL FROM {table.sql} WHERE FALSE"
    triggers = _triggers(session, locking, table.schema, table.name)
    definition = _definition(session, table.schema, table.name)
    if definition and (definition, triggers) == (table.definition, table.triggers):
        return table
    return read_table(session, table.schema, table.name)


def has_foreign_key(session: Session, table: Table) -> bool:
    """Return whether a row can wait for a row of another table."""
    [(count,)] = session.rows(_FOREIGN_KEYS, (table.schema, table.name))
    return int(count) > 0


def _definition(session: Session, schema: str, name: str) -> str:
    try:
        [(_, text, *_)] = session.raw_rows(f"SHOW CREATE TABLE {qualified(schema, name)}")
    except pymysql.Error as error:
        if code_of(error) not in DENIED | {NO_SUCH_TABLE}:
            raise
        return ""
    # MariaDB writes the default of a column of bytes as it is
    return _NEXT_NUMBER.sub("", text.decode(errors="backslashreplace"))


def _triggers(session: Session, statement: str, schema: str, name: str) -> tuple[Trigger, ...]:
    return tuple(Trigger(*row) for row in sorted(session.rows(statement, (schema, name))))


def _shape(column: Column | None) -> str:
    if column is None:
        return "missing"
    filled = " generated" * column.generated + " auto_increment" * column.auto_increment
    null = "" if column.nullable else " not null"
    return f"{column.column_type} {column.collation or ''}".strip() + null + filled
