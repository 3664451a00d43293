"""Plans how rows fill the table: when the sink is opened, and again when the table was altered.

What its triggers may do is said then. What one does to a row itself, the rows that are read back
show (`rows/read_back`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twophase.contract.sink import SinkContext
from twophase.errors import PreflightError
from twophase.sinks.mysql.checkpoint_column import check_column
from twophase.sinks.mysql.client.identifiers import qualified
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.options import MySqlOptions
from twophase.sinks.mysql.preflight import find_table, may_load_local, plan_columns
from twophase.sinks.mysql.rows.loading import InsertLoader, LoadDataLoader, Loader
from twophase.sinks.mysql.rows.read_back import ReadBack
from twophase.sinks.mysql.table import Table, read_table

_log = logging.getLogger("twophase.sinks.mysql")
_STATEMENT_BYTES = 1_000_000
_INTERLEAVED = 2
_TAKING_TURNS = (
    "{} has an AUTO_INCREMENT column that the rows do not fill, and innodb_autoinc_lock_mode is "
    "not 2: the tasks load their rows one after the other. Set it to 2 in the server's "
    "configuration, or fill the column"
)
_MAY_SEE_TRIGGERS = (
    "SELECT 1 FROM information_schema.USER_PRIVILEGES"
    " WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = %s UNION ALL"
    " SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES"
    " WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = %s AND %s LIKE TABLE_SCHEMA UNION ALL"
    " SELECT 1 FROM information_schema.TABLE_PRIVILEGES WHERE PRIVILEGE_TYPE = 'TRIGGER'"
    " AND GRANTEE = %s AND TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_NOT_TRANSACTIONAL = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES"
    " WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE <> 'InnoDB' AND LOCATE(TABLE_NAME, %s) > 0"
    " AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
)


@dataclass(frozen=True)
class TablePlan:
    """How rows fill the table.

    Attributes:
        table: the table that the rest is planned by.
        loader: loads rows into it.
        checkpoint_column: the column that names each row's checkpoint, if there is one.
        takes_turns: the tasks load one after the other, as the table's counter makes them.
    """

    table: Table
    loader: Loader
    checkpoint_column: str | None
    takes_turns: bool


@dataclass(frozen=True)
class Planner:
    """Plans for one sink.

    Attributes:
        options: of the sink.
        context: in which it is opened.
        server: as it described itself then.
    """

    options: MySqlOptions
    context: SinkContext
    server: Server

    def plan(self, session: Session) -> TablePlan:
        """Plan by the table as it is now, and say what its triggers may do.

        Raises:
            ConfigError: the table is not there, or rows of the schema do not fit; names each
                column.
            PreflightError: the table cannot take part.
        """
        table = find_table(session, self.options)
        plans = plan_columns(session, table, self.options, self.context)
        read_back = ReadBack.of(table, plans)
        if plans:
            _check_triggers(table, read_back)
        takes_turns = self._takes_turns(table, read_back)
        turns = [_TAKING_TURNS.format(table.sql)] if takes_turns else []
        for text in (*_warnings(session, self.server, table), *turns):
            _log.warning("sink %s: %s.", self.context.sink, text)
        column = self.options.checkpoint_column
        return TablePlan(
            table,
            self._loader(table, read_back),
            None if column is None else check_column(table, column),
            takes_turns,
        )

    def plan_again(self, session: Session, plan: TablePlan) -> TablePlan:
        """Return the plan if the table is still the one that it was made by, or a new one.

        A table that is gone is left to the check of its identity.

        Raises:
            ConfigError: rows of the schema no longer fit.
            PreflightError: the table can no longer take part.
        """
        now = read_table(session, plan.table.schema, plan.table.name)
        return plan if now is None or now == plan.table else self.plan(session)

    def _loader(self, table: Table, read_back: ReadBack) -> Loader:
        if may_load_local(self.server, self.options):
            return LoadDataLoader(table.sql, read_back.plans, read_back)
        packet = self.server.number("max_allowed_packet", 1024)
        statement = min(_STATEMENT_BYTES, packet // 2)
        return InsertLoader(table.sql, read_back.plans, read_back, statement, packet)

    def _takes_turns(self, table: Table, read_back: ReadBack) -> bool:
        """Return whether statements lock the table's counter until they end, and so wait."""
        given = {plan.column for plan in read_back.plans}
        counts = any(one.auto_increment and one.name not in given for one in table.columns)
        mode = self.server.number("innodb_autoinc_lock_mode", _INTERLEAVED)
        return counts and mode != _INTERLEAVED


def _may_see_triggers(session: Session, server: Server, schema: str, name: str) -> bool:
    """Return whether the server shows this account the triggers of a table. MariaDB always does."""
    if server.is_mariadb:
        return True
    [(account,)] = session.rows("SELECT CURRENT_USER()")
    user, _, host = str(account).rpartition("@")
    grantee = f"'{user}'@'{host}'"
    return bool(session.rows(_MAY_SEE_TRIGGERS, (grantee, grantee, schema, grantee, schema, name)))


def _check_triggers(table: Table, read_back: ReadBack) -> None:
    """Refuse a trigger that may change rows which cannot be read back.

    Raises:
        PreflightError: there is one.
    """
    before = [trigger for trigger in table.triggers if trigger.timing == "BEFORE"]
    if before and not read_back.key:
        raise PreflightError(
            f"The {before[0]} may change rows of {table.sql}, and without a unique key that the "
            "rows fill none can be read back to see it.",
            remedy=f"add a key that the rows fill to {table.sql}, or do what the trigger does "
            "before the sink and drop it.",
        )


def _warnings(session: Session, server: Server, table: Table) -> Iterator[str]:
    """Yield what the triggers of a table may do, one text for each."""
    for trigger in table.triggers:
        lasting = _lasting(session.rows(_NOT_TRANSACTIONAL, (trigger.body,)))
        yield (
            f"the {trigger} runs for each row of {table.sql}. A row that it changes is refused. "
            f"What it writes elsewhere is part of the branch, except in tables without "
            f"transactions{lasting}: there it stays when an attempt is declined, and the next "
            "attempt writes it again"
        )
    if not table.triggers and not _may_see_triggers(session, server, table.schema, table.name):
        yield (
            f"this account cannot see whether {table.sql} has triggers. GRANT TRIGGER ON "
            f"{table.sql} TO the user of the sink, and they are named here"
        )


def _lasting(found: Sequence[tuple[str, ...]]) -> str:
    named = ", ".join(f"{qualified(schema, name)} ({engine})" for schema, name, engine in found)
    return f" such as {named}" if named else ""
