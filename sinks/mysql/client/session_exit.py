"""Nobody may touch a prepared branch before the session that prepared it is gone.

Before MySQL 8.0.29 and on MariaDB a branch passes to others when its session ends, in two steps: first the server hands
it over, then the engine does. XA COMMIT from elsewhere is refused before the first step (1397). **Between the two it
answers OK and commits nothing**: the branch is then neither committed nor listed, keeps its locks, and comes back as
prepared when the server is restarted. XA ROLLBACK does the same (docs/decisions/0010).

The process list does not tell: MySQL leaves a session out when its socket is closed, which is before both steps, MariaDB
between the two. On MySQL `KILL` finds a session until both are done, so it is asked until it answers 1094. On MariaDB
InnoDB's list of transactions tells, for which the account needs PROCESS; without that right the driver waits a moment
longer. On both, no OK is believed without the ledger.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from uuid import uuid4

import pymysql

from twophase.sinks.mysql.client.codes import DENIED, KILL_DENIED, UNKNOWN_THREAD, code_of
from twophase.sinks.mysql.client.connection import Session
from twophase.sinks.mysql.client.session_locks import holder_of, kill
from twophase.sinks.mysql.xid import Xid

_POLL_S = 0.01
_CLOSING_POLL_S = 0.001
# MariaDB, where nothing tells that the engine has let go of a branch.
_SETTLING_S = 0.05
# InnoDB answers from a copy of its list of transactions, which it renews when nobody has read it for a tenth of a second:
# whoever asks sooner gets the same copy again, and starts that tenth anew.
_RENEWAL_S = (0.11, 0.2)
_NO_RENEWAL_S = 1.0
# A session of that number that does not hold the branch's lock is closing, which takes milliseconds, or is another one:
# numbers begin anew when the server does.
_OTHER_SESSION_S = 1.0


def present(session: Session, numbers: Collection[int]) -> set[int]:
    """Which of these sessions are still on the process list. Sessions of one's own account are always shown."""
    if not numbers:
        return set()
    rows = session.rows(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE ID IN %s AND ID <> CONNECTION_ID()", (tuple(numbers),)
    )
    return {int(number) for (number,) in rows}


def wait_until_left(session: Session, xids: Collection[Xid], deadline: float, *, killing: bool) -> set[Xid]:
    """Wait until the sessions that wrote these branches are gone.

    Args:
        session: the driver's.
        xids: the branches.
        deadline: when to give up, on the monotonic clock.
        killing: whether to end them (H2).

    Returns:
        The branches whose sessions are still there.
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
    """Wait until sessions that were just ended are gone; returns those that are still there."""
    while (there := present(session, numbers)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return there | _wait_until_closed(session, set(numbers) - there, deadline)


def may_list_transactions(session: Session) -> bool:
    """Whether this account may see which sessions InnoDB still connects with a transaction: the right PROCESS."""
    try:
        session.rows("SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1")
    except pymysql.Error as error:
        if code_of(error) in DENIED:
            return False
        raise
    return True


def _wait_until_closed(session: Session, numbers: Collection[int], deadline: float) -> set[int]:
    """Wait until sessions that are off the process list have let go of their branches; returns those that have not."""
    closing = {number for number in numbers if number != session.id and _is_closing(session, number)}
    while closing and time.monotonic() < deadline:
        time.sleep(_CLOSING_POLL_S)
        closing = {number for number in closing if _is_closing(session, number)}
    if numbers and "mariadb" in session.server_version.lower():
        # A number of this very session is another one's, of before a restart of the server: that one is gone.
        closing |= _wait_until_released(session, set(numbers) - closing - {session.id}, deadline)
    return closing


def _is_closing(session: Session, number: int) -> bool:
    """Whether the server still has a session that is off the process list, where nobody can run a statement any more."""
    try:
        session.run(f"KILL QUERY {int(number)}")
    except pymysql.Error as error:
        if code_of(error) in (UNKNOWN_THREAD, KILL_DENIED):  # denied: another account's, after a restart of the server
            return False
        raise
    return True


def _wait_until_released(session: Session, numbers: set[int], deadline: float) -> set[int]:
    """Wait until InnoDB connects none of these sessions with a transaction; returns those that it still does.

    The list is a copy. One that shows the statement of this wait was made after the sessions had left the process list.
    """
    patience, marker = time.monotonic() + _NO_RENEWAL_S, uuid4().hex
    session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")  # InnoDB lists a session that is in a transaction
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
    """The sessions that InnoDB connects with a transaction, and whether the list shows this statement."""
    listed = session.rows(
        "SELECT trx_mysql_thread_id, COALESCE(trx_query, '') LIKE %s FROM information_schema.INNODB_TRX",
        (f"%{marker}%",),
    )
    return {int(number) for number, _ in listed}, any(shows_marker for _, shows_marker in listed)
