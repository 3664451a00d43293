"""The settings of every session, and the check that the server has taken them.

Nothing is left to the server's defaults: a non-strict `sql_mode` clips values, an `init_connect` or
a proxy may have changed any setting, and the default lock wait timeouts are up to a year long. An
administrator may change a default while the job runs: sessions that are open keep the old one.

What is left as it is changes no row and ends no session, or only what a trigger or a default
computes (`div_precision_increment`, `group_concat_max_len`, `auto_increment_increment`): that is
the administrator's choice.
"""

from __future__ import annotations

from contextlib import suppress

import pymysql

from twophase.errors import TargetUnreachableError
from twophase.sinks.mysql.client.refusals import explain, refused
from twophase.sinks.mysql.client.session import Session, connect
from twophase.sinks.mysql.options import Endpoint

# ERROR_FOR_DIVISION_BY_ZERO: a generated column or a default may divide; without it 1/0 is NULL.
# NO_AUTO_VALUE_ON_ZERO: a 0 in an AUTO_INCREMENT column is a 0. Without ANSI_QUOTES and
# NO_BACKSLASH_ESCAPES, so that quotes and backslashes in our statements mean what we think.
_SQL_MODE = (
    "STRICT_TRANS_TABLES",
    "STRICT_ALL_TABLES",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_ENGINE_SUBSTITUTION",
)
# The server's own: whether a default may be a date that does not exist, as in old tables, and what
# a generated column may make of a text. The rows have none.
_OF_SERVER = ("NO_ZERO_DATE", "NO_ZERO_IN_DATE")
_MODE = ", ".join(
    [f"'{','.join(_SQL_MODE)}'"]
    + [f"IF(FIND_IN_SET('{one}', @@GLOBAL.sql_mode), '{one}', NULL)" for one in _OF_SERVER]
)
_IDLE_TIMEOUT_S = 3600
_PAUSE_S = 60
"""How long the server waits for the other side in the middle of a statement, at the least."""

_SETTINGS = (
    "sql_notes = 1",
    "max_error_count = 64",
    "time_zone = '+00:00'",
    "unique_checks = 1",
    "foreign_key_checks = 1",
    "sql_safe_updates = 0",
    "completion_type = 0",
    "sql_select_limit = 18446744073709551615",
    "sql_big_selects = 1",  # max_join_size limits nothing
    "sql_auto_is_null = 0",
    "sql_quote_show_create = 1",  # two sessions describe a table in the same words
    "lc_messages = 'en_US'",  # warnings are searched for the number of a row
    *(
        f"{name} = CAST(GREATEST(@@{name}, {_PAUSE_S}) AS UNSIGNED)"
        for name in ("net_read_timeout", "net_write_timeout")
    ),
)
_OF_MYSQL = ("max_execution_time = 0", "show_create_table_verbosity = 0")
_OF_MARIADB = (
    "max_statement_time = 0",
    "check_constraint_checks = 1",
    "idle_transaction_timeout = 0",
    "idle_write_transaction_timeout = 0",
    "idle_readonly_transaction_timeout = 0",
    "old_mode = ''",  # rows that LOAD DATA skips are named
)
# Ordinary accounts may not set these on newer servers: only where the server's default is another.
_RESTRICTED = {"character_set_filesystem": "binary"}  # the name of the file in LOAD DATA


def open_driver_session(endpoint: Endpoint) -> Session:
    """Open a session for single statements: autocommit, READ COMMITTED. It cannot load files."""
    return _open(endpoint, autocommit=True, local_infile=False, lock_wait_s=1)


def open_writer_session(endpoint: Endpoint, *, local_infile: bool) -> Session:
    """Open a session for one XA branch: without autocommit, a lost one commits nothing (H39)."""
    return _open(
        endpoint,
        autocommit=False,
        local_infile=local_infile,
        lock_wait_s=endpoint.lock_wait_timeout_s,
    )


def _open(endpoint: Endpoint, *, autocommit: bool, local_infile: bool, lock_wait_s: int) -> Session:
    session = connect(endpoint, local_infile=local_infile)
    try:
        _settle(session, endpoint, autocommit=autocommit, lock_wait_s=lock_wait_s)
        _check_server(session, endpoint)
    except pymysql.Error as error:
        session.end()
        raise explain(endpoint, error, "The session's settings at") from error
    except BaseException:
        session.end()
        raise
    return session


def _check_server(session: Session, endpoint: Endpoint) -> None:
    """Check that all writers of an attempt are on the server that the driver has fenced (H6)."""
    if endpoint.server_uuid is None:
        return
    if (found := read_server_uuid(session)) != endpoint.server_uuid:
        raise TargetUnreachableError(
            f"{endpoint} was the server {endpoint.server_uuid} when the attempt began, "
            f"and is {found} now.",
            remedy="the next attempt is on that server, if it has proof of what is committed.",
        )


def read_server_uuid(session: Session) -> str | None:
    """Return the id of the server that a session is on; None for MariaDB, which has none."""
    if session.is_mariadb:
        return None
    [(found,)] = session.rows("SELECT @@server_uuid")
    return str(found)


def read_account(session: Session) -> tuple[str, str]:
    """Return user and host of the account that a session was let in by."""
    [(found,)] = session.rows("SELECT CURRENT_USER()")
    user, _, host = str(found).rpartition("@")
    return user, host


def _settle(session: Session, endpoint: Endpoint, *, autocommit: bool, lock_wait_s: int) -> None:
    session.run("COMMIT AND NO CHAIN NO RELEASE")  # what init_connect has begun
    session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
    settings = (
        f"autocommit = {int(autocommit)}",
        f"sql_mode = CONCAT_WS(',', {_MODE})",
        *_SETTINGS,
        *(_OF_MARIADB if session.is_mariadb else _OF_MYSQL),
        f"innodb_lock_wait_timeout = {lock_wait_s}",
        f"lock_wait_timeout = {lock_wait_s}",
        f"wait_timeout = {_IDLE_TIMEOUT_S}",
    )
    session.run(f"SET SESSION {', '.join(settings)}")
    for name, value in _RESTRICTED.items():
        if session.rows(f"SELECT @@{name}") != [(value,)]:
            session.run(f"SET SESSION {name} = {value}")
    [(number, mode, committing, lock_wait, zone)] = session.rows(
        "SELECT CONNECTION_ID(), @@sql_mode, @@autocommit, @@innodb_lock_wait_timeout, @@time_zone"
    )
    if number & 0xFFFFFFFF != session.id:
        raise refused(
            endpoint,
            f"A proxy answered for session {session.id} with session {number} of the server.",
            remedy="connect to the server itself: an XA branch lives in one session, which a "
            "pooling proxy takes away.",
        )
    if {*mode.split(",")} - {*_OF_SERVER} != {*_SQL_MODE} or (committing, lock_wait, zone) != (
        autocommit,
        lock_wait_s,
        "+00:00",
    ):
        raise refused(
            endpoint,
            f"The session did not keep its settings: sql_mode {mode!r}, autocommit {committing}, "
            f"time zone {zone!r}.",
            remedy="connect to the server itself, or allow the user to change session variables.",
        )


def end_quietly(session: Session | None) -> None:
    """Close a session that may be broken."""
    if session is not None:
        with suppress(pymysql.Error, OSError):
            session.end()
