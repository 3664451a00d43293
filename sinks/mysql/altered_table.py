"""Branches over a table that was altered after they were prepared, on MySQL before 8.0.13.

The metadata lock of a branch ends there with its session, and an ALTER that rewrites no row
(`ADD COLUMN`) does not wait for its row locks. Then `XA COMMIT` and `XA ROLLBACK` end the server
with all its sessions. It comes back with the branch committed or rolled back; a server that was
restarted in between stays up. Not so for a VIRTUAL column: there `XA ROLLBACK` ends the restarted
server too, perhaps at each start from then on. It has to be dropped before (docs/production.md).
"""

from __future__ import annotations

from collections.abc import Collection

import pymysql

from twophase.sinks.mysql.client.codes import DENIED, code_of
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_exit import may_list_transactions
from twophase.sinks.mysql.identity import TableIdentity
from twophase.sinks.mysql.orphans import prepared
from twophase.sinks.mysql.xid import Owner, Xid

_LOCKS_STAY = (8, 0, 13)


def left_behind(session: Session, owner: Owner) -> frozenset[Xid]:
    """Return the prepared branches of a job whose table was altered since; none on a server that
    lets no ALTER pass them.
    """
    return frozenset(prepared(session, owner)) if _is_affected(_version(session)) else frozenset()


def why_to_wait(session: Session, owner: Owner, table: TableIdentity, xids: Collection[Xid]) -> str:
    """Return why branches that were left behind cannot be ended yet; empty if they can.

    Args:
        session: the driver's.
        owner: of the branches.
        table: as it is now.
        xids: some branches.
    """
    if not {*xids} & {*prepared(session, owner)} or not _is_older(session, table):
        return ""
    return (
        f"{table.schema}.{table.name} was altered while a branch is prepared, and MySQL "
        f"{_version(session).text} may end, with all its sessions, in XA COMMIT and XA ROLLBACK "
        "then: drop the VIRTUAL columns that the table has got since, and restart the server, "
        "which keeps the branch"
    )


def _is_affected(server: Server) -> bool:
    return not server.is_mariadb and server.version < _LOCKS_STAY


def _version(session: Session) -> Server:
    [(text,)] = session.rows("SELECT VERSION()")
    return Server(str(text), {})


def _is_older(session: Session, table: TableIdentity) -> bool:
    """Return whether a branch is older than the table is now, and not from before the server's
    start. On a replica the table may not be the one that the job has recorded, and not altered.
    """
    [(_, uptime_s)] = session.rows("SHOW GLOBAL STATUS LIKE 'Uptime'")
    found = session.rows(
        "SELECT CREATE_TIME, CREATE_TIME <= NOW() - INTERVAL %s SECOND"
        " FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (int(str(uptime_s)), table.schema, table.name),
    )
    return any(not restarted and _has_older(session, table, made) for made, restarted in found)


def _has_older(session: Session, table: TableIdentity, made: object) -> bool:
    """Return whether a branch over a table may have begun before the table was made: also True if
    we may not see that. InnoDB tells it in the server's zone, not in the session's.
    """
    if not may_list_transactions(session):
        return True
    began = session.rows(
        "SELECT trx_id FROM information_schema.INNODB_TRX"
        " WHERE trx_mysql_thread_id = 0"
        " AND CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') <= %s",
        (made,),
    )
    older = {int(str(number)) for (number,) in began}
    return bool(older & (_locking(session, table) or older))


def _locking(session: Session, table: TableIdentity) -> set[int]:
    """Return the transactions that have a lock on a table, as each branch with a row has; none if
    the account may not see them, or the performance schema is off.
    """
    try:
        found = session.rows(
            "SELECT ENGINE_TRANSACTION_ID FROM performance_schema.data_locks"
            " WHERE OBJECT_SCHEMA = %s AND OBJECT_NAME = %s AND LOCK_TYPE = 'TABLE'",
            (table.schema, table.name),
        )
    except pymysql.Error as error:
        if code_of(error) in DENIED:
            return set()
        raise
    return {int(str(number)) for (number,) in found}
