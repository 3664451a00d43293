"""Nobody may touch a prepared branch before the session that prepared it is gone.

Before MySQL 8.0.29 and on MariaDB a branch passes to others when its session ends, in two steps: first the server hands
it over, then the engine does. XA COMMIT from elsewhere is refused before the first step (1397). **Between the two it
answers OK and commits nothing**: the branch is then neither committed nor listed, keeps its locks, and comes back as
prepared when the server is restarted. XA ROLLBACK does the same (docs/decisions/0010).

MySQL takes a session off its process list after the second step, MariaDB just before it. So that is what is waited for,
with a moment more where it was just there or the server is MariaDB, and no OK is believed without the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from sinks.mysql.connection import Session
from sinks.mysql.slots import holder_of, kill
from sinks.mysql.xid import Xid

_POLL_S = 0.01
_SETTLING_S = 0.005
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
    seen = False
    while True:
        there = present(session, {xid.session for xid in xids})
        waiting = [xid for xid in xids if xid.session in there]
        held = [xid for xid in waiting if holder_of(session, xid) == xid.session]
        if killing:
            kill(session, {xid.session for xid in held})
        now = time.monotonic()
        if not waiting or (not held and now >= surely_others):
            time.sleep(_SETTLING_S if seen or _unlists_early(session) else 0)
            return set()
        if now >= deadline:
            return set(waiting)
        seen = True
        time.sleep(_POLL_S)


def _unlists_early(session: Session) -> bool:
    """Whether a session that is off the process list may still hold its branch for a moment."""
    return "mariadb" in session.server_version.lower()


def wait_until_gone(session: Session, numbers: Collection[int], deadline: float) -> set[int]:
    """Wait until sessions that were just ended are gone; returns those that are still there."""
    while (there := present(session, numbers)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    time.sleep(_SETTLING_S)
    return there
