"""Waits until the sessions that prepared branches are gone: only then may others touch them.

Before MySQL 8.0.29 and on MariaDB a branch is released when its session ends, in two steps: first
by the server, then by the engine. XA COMMIT from another session is refused before the first step
(1397). **Between the two it answers OK and commits nothing**: the branch is then neither committed
nor listed, keeps its locks, and comes back as prepared when the server is restarted. XA ROLLBACK
does the same (docs/decisions/0010).

The process list cannot show this: MySQL drops a session from it when its socket is closed, before
both steps; MariaDB between the two. On MySQL, `KILL` finds a session until both are done, so it is
repeated until it answers 1094. On MariaDB, InnoDB's list of transactions shows it, for which the
account needs PROCESS; without that privilege the driver waits a moment longer. On both, no OK is
believed without the ledger.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from uuid import uuid4

import pymysql

from twophase.sinks.mysql.client.codes import DENIED, KILL_DENIED, UNKNOWN_THREAD, code_of
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_locks import holder_of, kill
from twophase.sinks.mysql.xid import Xid

_POLL_S = 0.01
_CLOSING_POLL_S = 0.001
# MariaDB, where nothing shows that the engine has released a branch.
_SETTLING_S = 0.05
# InnoDB answers from a copy of its list of transactions, which it renews when nobody has read it
# for a tenth of a second: a query before that gets the same copy again and restarts the
# tenth of a second.
_RENEWAL_S = (0.11, 0.2)
_NO_RENEWAL_S = 1.0
# A session of that number that does not hold the branch's lock is closing, which takes
# milliseconds, or is another one: numbering restarts with the server.
_OTHER_SESSION_S = 1.0


def present(session: Session, numbers: Collection[int]) -> set[int]:
    """Return those sessions that are still on the process list."""
    if not numbers:
        return set()
    rows = session.rows(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE ID IN %s AND ID <> CONNECTION_ID()",
        (tuple(numbers),),
    )
    return {int(number) for (number,) in rows}


def wait_until_left(
    session: Session, xids: Collection[Xid], deadline: float, *, killing: bool
) -> set[Xid]:
    """Wait until the sessions that wrote these branches are gone.

    Args:
        session: the driver's.
        xids: the branches.
        deadline: when to give up, on the monotonic clock.
        killing: end them first (H2).

    Returns:
        The branches whose sessions remain.
    """
    surely_others = time.monotonic() + _OTHER_SESSION_S
    while True:
        there = present(session, {xid.session for xid in xids})
        waiting = [xid for xid in xids if xid.session in there]
        held = [xid for xid in waiting if holder_of(session, xid) == xid.session]
        if killing:
            kill(session, {xid.session for xid in held})
        now = time.monotonic()
        if held:  # one that was just seen with its lock may have lost it since, closing
            surely_others = now + _OTHER_SESSION_S
        if not waiting or (not held and now >= surely_others):
            left = _wait_until_closed(session, {xid.session for xid in xids} - there, deadline)
            return {xid for xid in xids if xid.session in left}
        if now >= deadline:
            return set(waiting)
        time.sleep(_POLL_S)


def wait_until_gone(session: Session, numbers: Collection[int], deadline: float) -> set[int]:
    """Wait until sessions that were just killed are gone; return those that remain."""
    while (there := present(session, numbers)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return there | _wait_until_closed(session, set(numbers) - there, deadline)


def may_list_transactions(session: Session) -> bool:
    """Return whether this account has PROCESS: then it sees the sessions of transactions."""
    try:
        session.rows("SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1")
    except pymysql.Error as error:
        if code_of(error) in DENIED:
            return False
        raise
    return True


def _wait_until_closed(session: Session, numbers: Collection[int], deadline: float) -> set[int]:
    """Wait until sessions off the process list have released their branches; return the rest."""
    closing = {
        number for number in numbers if number != session.id and _is_closing(session, number)
    }
    while closing and time.monotonic() < deadline:
        time.sleep(_CLOSING_POLL_S)
        closing = {number for number in closing if _is_closing(session, number)}
    if numbers and session.is_mariadb:
        # This session's own number means a session from before a restart of the
        # server: that one is gone.
        closing |= _wait_until_released(session, set(numbers) - closing - {session.id}, deadline)
    return closing


def _is_closing(session: Session, number: int) -> bool:
    """Return whether the server still has a session that can run no more statements."""
    try:
        session.run(f"KILL QUERY {int(number)}")
    except pymysql.Error as error:
        # denied: another account's, after a server restart
        if code_of(error) in (UNKNOWN_THREAD, KILL_DENIED):
            return False
        raise
    return True


def _wait_until_released(session: Session, numbers: set[int], deadline: float) -> set[int]:
    """Wait until InnoDB associates no transaction with these sessions; return the rest.

    The list is a copy. A copy that shows this wait's own statement was made after the sessions had
    left the process list.
    """
    patience, marker = time.monotonic() + _NO_RENEWAL_S, uuid4().hex
    # InnoDB lists a session that is in a transaction
    session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    try:
        while True:
            connected, is_new = _transactions(session, marker)
            now = time.monotonic()
            if is_new and not connected & numbers:
                return set()
            if not is_new and now >= patience:
                return set()
            if now >= deadline:
                return connected & numbers if is_new else numbers
            time.sleep(random.uniform(*_RENEWAL_S))  # noqa: S311 no secret
    except pymysql.Error as error:
        if code_of(error) not in DENIED:
            raise
        time.sleep(_SETTLING_S)
        return set()
    finally:
        if session.open:
            session.run("COMMIT")


def _transactions(session: Session, marker: str) -> tuple[set[int], bool]:
    """Return the sessions that InnoDB has transactions of, and whether this statement is listed."""
    listed = session.rows(
        "SELECT trx_mysql_thread_id, COALESCE(trx_query, '') LIKE %s "
        "FROM information_schema.INNODB_TRX",
        (f"%{marker}%",),
    )
    return {int(number) for number, _ in listed}, any(shows_marker for _, shows_marker in listed)
