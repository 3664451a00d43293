"""All checks that can be made before the first row, in `open`.

Problems are collected, so that one start names all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pymysql

from twophase.contract.sink import SinkContext
from twophase.errors import ConfigError, PreflightError
from twophase.sinks.mysql.checkpoint_column import check_column
from twophase.sinks.mysql.client.codes import DENIED, LOCK_WAIT_TIMEOUT, NO_DEFAULT, code_of
from twophase.sinks.mysql.client.identifiers import quote
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_locks import SLOTS
from twophase.sinks.mysql.options import Load, MySqlOptions
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column
from twophase.sinks.mysql.table import Table, has_foreign_key, read_table

_FIRST_XA_WITH_BINLOG = (8, 0, 30)
_OLDEST_MYSQL = (8, 0, 0)
_OLDEST_MARIADB = (10, 5, 0)
_OWN_SESSIONS = 3
_NEVER_FLUSHED = "nosync", "littlesync"


def check_server(server: Server, options: MySqlOptions, context: SinkContext | None = None) -> None:
    """Refuse a server that may lose acknowledged rows (H6), or has too few connections (H38).

    Args:
        server: the server's description of itself.
        options: the sink's options.
        context: the job's context; without it the number of connections needed is not known yet.

    Raises:
        PreflightError: a setting is unsafe or too small; the message names each.
    """
    problems = _version_problems(server) + (
        _connection_problems(server, context) if context else []
    )
    if not options.allow_unsafe_durability:
        unsafe = _durability_problems(server)
        if unsafe:
            unsafe.append(
                "allow_unsafe_durability accepts the loss of rows when the server's machine stops."
            )
        problems += unsafe
    if problems:
        raise PreflightError(f"{server.text}: {' '.join(problems)}")


def _version_problems(server: Server) -> list[str]:
    oldest = _OLDEST_MARIADB if server.is_mariadb else _OLDEST_MYSQL
    problems = []
    if server.version < oldest:
        problems.append(
            f"It is older than {'.'.join(map(str, oldest))}: "
            "its XA branches do not outlive a crash."
        )
    if server.is_on("wsrep_on"):
        problems.append("It is a Galera node (wsrep_on), which has no XA.")
    if server.is_on("log_bin") and server.variables.get("binlog_format") == "STATEMENT":
        problems.append(
            "binlog_format is STATEMENT, which takes no writes at READ COMMITTED; "
            "SET GLOBAL binlog_format = 'ROW'."
        )
    return problems


def _durability_problems(server: Server) -> list[str]:
    problems = []
    if server.number("innodb_flush_log_at_trx_commit") != 1:
        problems.append(
            "innodb_flush_log_at_trx_commit is not 1: prepared branches are lost in a crash; "
            "set it to 1."
        )
    if server.variables.get("innodb_flush_method", "").lower() in _NEVER_FLUSHED:
        problems.append("innodb_flush_method never flushes; name another one.")
    if server.is_on("log_bin"):
        if server.number("sync_binlog") != 1:
            problems.append("sync_binlog is not 1 while the binary log is on; set it to 1.")
        if not server.is_mariadb and server.version < _FIRST_XA_WITH_BINLOG:
            problems.append(
                "XA and the binary log are not crash-safe together before MySQL 8.0.30; "
                "upgrade or skip-log-bin."
            )
    return problems


def _connection_problems(server: Server, context: SinkContext) -> list[str]:
    wanted = context.parallelism + _OWN_SESSIONS
    limits = [SLOTS]
    limits += [
        max(number - context.beside, 0)
        for name in ("max_connections", "max_user_connections")
        if (number := server.number(name))
    ]
    if wanted <= min(limits):
        return []
    beside = f" beside {context.beside} writers of chained sinks" if context.beside else ""
    return [
        (
            f"{context.parallelism} writers and {_OWN_SESSIONS} other sessions exceed the "
            f"{min(limits)} connections allowed{beside}; coalesce the rows before the sink, "
            f"{'set chaining=off, ' if beside else ''}or raise max_connections."
        )
    ]


def find_table(session: Session, options: MySqlOptions) -> Table:
    """Find the table.

    Raises:
        ConfigError: it is not there.
        PreflightError: the account does not see its columns, or it cannot take part in XA
            transactions.
    """
    table = read_table(session, options.schema_name, options.table)
    if table is None:
        raise ConfigError(
            f"There is no table {options.schema_name}.{options.table} that this account can see.",
            remedy="create it, correct the option 'table', or GRANT SELECT, INSERT on it.",
        )
    if not table.columns:
        raise PreflightError(
            f"The account sees {table.sql}, and none of its columns.",
            remedy=f"GRANT SELECT, INSERT ON {table.sql} TO the user of the sink. Of its rights on "
            "schemas only those of the most specific name count that matches: SHOW GRANTS tells "
            "them.",
        )
    check_engine(table)
    return table


def check_engine(table: Table) -> None:
    """Refuse a table that cannot take part in XA transactions.

    Raises:
        PreflightError: it cannot.
    """
    if table.kind == "SYSTEM VERSIONED":
        raise PreflightError(
            f"{table.sql} keeps the history of its rows ({table.kind}): the sink does not write to "
            "such a table.",
            remedy=f"name another table, or ALTER TABLE {table.sql} DROP SYSTEM VERSIONING, which "
            "deletes the history.",
        )
    if table.kind != "BASE TABLE":
        raise PreflightError(
            f"{table.sql} is a {table.kind}: XA needs an InnoDB table.",
            remedy="name another table.",
        )
    if table.engine.lower() != "innodb":
        raise PreflightError(
            f"{table.sql} is a table of the engine {table.engine or 'none'}: "
            "XA needs an InnoDB table.",
            remedy=f"ALTER TABLE {table.sql} ENGINE = InnoDB, or name another table.",
        )


def plan_columns(
    session: Session, table: Table, options: MySqlOptions, context: SinkContext
) -> tuple[ColumnPlan, ...]:
    """Plan how each column is filled; plan none if no rows will follow.

    Raises:
        ConfigError: rows of the schema do not fit; names each column.
        PreflightError: the table cannot take part.
    """
    if context.schema is None:
        return ()
    _check_keys(session, table, context)
    plans = _plan_columns(_with_checkpoint(table, options, context.schema), table)
    _check_rights(session, table, [plan.column for plan in plans])
    return plans


def _check_keys(session: Session, table: Table, context: SinkContext) -> None:
    if context.speculation and table.unique_keys:
        raise PreflightError(
            f"spark.speculation is on and {table.sql} has a unique key: "
            "two attempts of one task would wait for each "
            "other.",
            remedy="switch spark.speculation off for this job.",
        )
    if context.max_concurrent > 1 and (table.unique_keys or has_foreign_key(session, table)):
        keys = "unique" if table.unique_keys else "foreign"
        raise PreflightError(
            f"checkpoint.max_concurrent is {context.max_concurrent} and {table.sql} has a {keys} "
            "key: rows of a checkpoint could wait for the locks of the one before it, which is "
            "prepared and not committed yet.",
            remedy="leave checkpoint.max_concurrent at 1 for this job, "
            "or write to a table without such keys.",
        )


def _with_checkpoint(table: Table, options: MySqlOptions, schema: pa.Schema) -> pa.Schema:
    """Return the rows' schema, with the column that names their checkpoint if there is one."""
    if options.checkpoint_column is None:
        return schema
    column = check_column(table, options.checkpoint_column)
    if column.lower() in (name.lower() for name in schema.names):
        raise ConfigError(
            f"The rows for {table.sql} have a column {column!r}, which the sink fills itself: it "
            "is the checkpoint_column.",
            remedy="drop or rename it before the sink, or name another column.",
        )
    return schema.append(pa.field(column, pa.string()))


def _plan_columns(schema: pa.Schema, table: Table) -> tuple[ColumnPlan, ...]:
    columns = {column.name.lower(): column for column in table.columns}
    plans: dict[str, ColumnPlan] = {}
    problems: list[str] = []
    for field in schema:
        column = columns.get(field.name.lower())
        if column is None:
            problems.append(f"{field.name}: the table has no such column.")
            continue
        plan = plan_column(field, column)
        if isinstance(plan, str):
            problems.append(plan)
        elif plan.column in plans:
            problems.append(f"{field.name}: {plans[plan.column].field} goes into the same column.")
        else:
            plans[plan.column] = plan
    given = {field.name.lower() for field in schema}
    problems += [
        f"{column.name}: it is NOT NULL, has no default, and the rows have no value for it."
        for column in table.columns
        if column.required and column.name.lower() not in given
    ]
    if problems:
        raise ConfigError(
            f"The rows do not match {table.sql}: {' '.join(problems)}",
            remedy="select and cast the columns before the sink, or alter the table.",
        )
    if not plans:
        raise ConfigError(f"The rows for {table.sql} have no columns.")
    return tuple(plans.values())


def _check_rights(session: Session, table: Table, columns: Sequence[str]) -> None:
    denied = _denied(session, table, columns)
    if denied is not None:
        raise PreflightError(
            f"The account may not insert into {table.sql}, or not read it back: {denied}.",
            remedy=f"GRANT SELECT, INSERT ON {table.sql} TO the user of the sink.",
        )


def check_any_rights(session: Session, table: Table) -> None:
    """Refuse an account that may not write to any column; those of the rows are unknown.

    Raises:
        PreflightError: it may not.
    """
    # MySQL takes no value for a generated one, and says so before it asks for the privileges
    columns = [column.name for column in table.columns if not column.generated]
    if all(_denied(session, table, [column]) is not None for column in columns):
        _check_rights(session, table, columns)


def _denied(session: Session, table: Table, columns: Sequence[str]) -> str | None:
    """Return why the account may not write and read these columns; None if it may, or somebody
    keeps the table locked.

    On MySQL it may be DDL that waits for a branch of this very job, which a start has to come as
    far as to end. On MariaDB such DDL gives up by itself.
    """
    names = ", ".join(map(quote, columns))
    try:
        # EXPLAIN needs the privileges of the statement that it explains, and changes nothing.
        session.run(
            f"EXPLAIN INSERT INTO {table.sql} ({names}) SELECT {names} FROM {table.sql} WHERE 1 = 0"
        )
    except pymysql.Error as error:
        # of a column that is not named; the privileges were checked before that
        if code_of(error) in (NO_DEFAULT, LOCK_WAIT_TIMEOUT):
            return None
        if code_of(error) not in DENIED:
            raise
        return str(error.args[-1])
    return None


def may_load_local(server: Server, options: MySqlOptions) -> bool:
    """Return whether rows are sent by LOAD DATA LOCAL.

    Raises:
        PreflightError: the user asked for it and the server forbids it.
    """
    allowed = server.is_on("local_infile")
    if options.load is Load.LOCAL and not allowed:
        scope = "GLOBAL" if server.is_mariadb else "PERSIST"  # MariaDB has no PERSIST
        raise PreflightError(
            "load='local', but the server forbids LOAD DATA LOCAL.",
            remedy="have an administrator run "
            f"SET {scope} local_infile = 1, or use `load=auto`, which takes INSERT then.",
        )
    return allowed and options.load is not Load.INSERT
