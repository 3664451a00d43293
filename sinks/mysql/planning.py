"""Plans how rows fill the table: when the sink is opened, and again when the table was altered."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from twophase.contract.sink import SinkContext
from twophase.sinks.mysql.checkpoint_column import check_column
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.options import MySqlOptions
from twophase.sinks.mysql.preflight import (
    check_engine,
    find_table,
    may_load_local,
    plan_columns,
)
from twophase.sinks.mysql.rows.key_order import key_order
from twophase.sinks.mysql.rows.loading import InsertLoader, LoadDataLoader, Loader
from twophase.sinks.mysql.rows.read_back import ReadBack
from twophase.sinks.mysql.table import Table, read_table
from twophase.sinks.mysql.triggers import check_triggers, warnings

_log = logging.getLogger("twophase.sinks.mysql")
_STATEMENT_BYTES = 1_000_000
_INTERLEAVED = 2
_TAKING_TURNS = (
    "{} has an AUTO_INCREMENT column that the rows do not fill, and innodb_autoinc_lock_mode is "
    "not 2: the tasks load their rows one after the other. Set it to 2 in the server's "
    "configuration, or fill the column"
)


_HIDDEN = (
    "this account may not see all columns of {0}: rows go by INSERT, which is slower, since LOAD "
    "DATA of MySQL would fill those that have no default. GRANT SELECT ON {0} TO the user of the "
    "sink"
)


@dataclass(frozen=True)
class TablePlan:
    """How rows fill the table.

    Attributes:
        table: the table that the rest is planned by.
        loader: loads rows into it.
        checkpoint_column: the column that names each row's checkpoint, if there is one.
        takes_turns: the tasks load one after the other, as the table's counter makes them.
        key_order: the fields that the rows of a statement are sorted by; none to leave them alone.
    """

    table: Table
    loader: Loader
    checkpoint_column: str | None
    takes_turns: bool
    key_order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planner:
    """Plans for one sink.

    Attributes:
        options: of the sink.
        context: in which it is opened.
        server: as it describes itself, then and before each attempt.
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
        return self._plan(session, find_table(session, self.options))

    def plan_again(self, session: Session, plan: TablePlan) -> TablePlan:
        """Return the plan if the table is still the one that it was made by, or a new one; and the
        loader that the server allows now.

        A table that is gone is left to the check of its identity.

        Raises:
            ConfigError: rows of the schema no longer fit.
            PreflightError: the table can no longer take part, or `load=local` is forbidden.
        """
        now = read_table(session, plan.table.schema, plan.table.name)
        if now is None or now == plan.table:
            return replace(plan, loader=self._loader(plan.table, plan.loader.read_back))
        check_engine(now)
        return self._plan(session, now)

    def _plan(self, session: Session, table: Table) -> TablePlan:
        plans = plan_columns(session, table, self.options, self.context)
        read_back = ReadBack.of(table, plans)
        if plans:
            check_triggers(table, read_back)
        takes_turns = bool(plans) and self._takes_turns(table, read_back)
        turns = [_TAKING_TURNS.format(table.sql)] if takes_turns else []
        hidden = [_HIDDEN.format(table.sql)] if plans and self._may_hide_columns(table) else []
        for text in (*warnings(session, self.server, table), *turns, *hidden):
            _log.warning("sink %s: %s.", self.context.sink, text)
        column = self.options.checkpoint_column
        return TablePlan(
            table,
            self._loader(table, read_back),
            None if column is None else check_column(table, column),
            takes_turns,
            key_order(table, read_back.plans),
        )

    def _loader(self, table: Table, read_back: ReadBack) -> Loader:
        if may_load_local(self.server, self.options) and not self._may_hide_columns(table):
            return LoadDataLoader(table.sql, read_back.plans, read_back)
        packet = self.server.number("max_allowed_packet", 1024)
        statement = min(_STATEMENT_BYTES, packet // 2)
        return InsertLoader(table.sql, read_back.plans, read_back, statement, packet)

    def _may_hide_columns(self, table: Table) -> bool:
        """Return whether the table may have a column that LOAD DATA fills without a warning."""
        return not self.server.is_mariadb and not table.definition

    def _takes_turns(self, table: Table, read_back: ReadBack) -> bool:
        """Return whether statements lock the table's counter until they end, and so wait."""
        given = {plan.column for plan in read_back.plans}
        counts = any(one.auto_increment and one.name not in given for one in table.columns)
        mode = self.server.number("innodb_autoinc_lock_mode", _INTERLEAVED)
        return counts and mode != _INTERLEAVED
