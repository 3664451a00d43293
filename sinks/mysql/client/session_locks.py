"""Session locks, used to find and end our sessions from another machine.

A writer's session holds two user-level locks: one of the numbered locks of its job and sink, and
one named after its branch. Such a lock needs no privileges and no table, tells which session holds
it, and is released when the session ends. Ending a session of one's own account needs no
privileges either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pymysql

from twophase.errors import DeclinedError
from twophase.ids import short_hash
from twophase.sinks.mysql.client.codes import UNKNOWN_THREAD, code_of
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.xid import Owner, Xid

SLOTS = 512


@dataclass(frozen=True)
class SessionLocks:
    """The session locks of one job and sink.

    Attributes:
        owner: the job and sink.
    """

    owner: Owner

    def take(self, session: Session, xid: Xid, first: int) -> None:
        """Take both locks, so that `session` can be found.

        Args:
            session: a session without a branch.
            xid: the branch it is about to open.
            first: the numbered lock to try first; concurrent writers should start at
                different numbers.

        Raises:
            DeclinedError: all numbered locks are taken, or another session has the branch.
        """
        for number in range(first, first + SLOTS):
            if _get_lock(session, self._lock_name(number % SLOTS)):
                break
        else:
            raise DeclinedError(
                f"All {SLOTS} sessions that sink {self.owner.sink!r} may have at once are in use."
            )
        if not _get_lock(session, _branch(xid)):
            raise DeclinedError(f"Another session is writing the branch {xid}.")

    def holders(self, session: Session) -> set[int]:
        """Return the sessions of all our writers, whatever their attempt."""
        asked = ", ".join(f"IS_USED_LOCK('{self._lock_name(number)}')" for number in range(SLOTS))
        [found] = session.rows(f"SELECT {asked}")
        return {int(number) for number in found if number is not None}

    def holder(self, session: Session, number: int) -> int | None:
        """Return the session that has the numbered lock which a writer tries first."""
        [(found,)] = session.rows("SELECT IS_USED_LOCK(%s)", (self._lock_name(number % SLOTS),))
        return None if found is None else int(found)

    def _lock_name(self, number: int) -> str:
        return f"tp:{self.owner.sink_hash}:{number}"


def holder_of(session: Session, xid: Xid) -> int | None:
    """Return the session that has a branch open, or has prepared it and has not ended."""
    [(number,)] = session.rows("SELECT IS_USED_LOCK(%s)", (_branch(xid),))
    return None if number is None else int(number)


def kill(session: Session, numbers: Collection[int]) -> None:
    """End sessions; ignore those that have already ended."""
    for number in numbers:
        try:
            session.run(f"KILL {int(number)}")
        except pymysql.Error as error:
            if code_of(error) != UNKNOWN_THREAD:
                raise


@contextmanager
def turn(session: Session, table: str, wait_s: float) -> Iterator[None]:
    """Wait until none of our other sessions is in this block for the same table.

    Args:
        session: in a branch or not.
        table: names the table.
        wait_s: the longest wait in one statement; bounded by the deadline of a reply.
    """
    name = f"tp:turn:{short_hash(table, 40)}"
    while not session.rows("SELECT GET_LOCK(%s, %s)", (name, wait_s))[0][0]:
        continue
    try:
        yield
    finally:
        with suppress(pymysql.Error):  # ends with the session
            session.run("DO RELEASE_LOCK(%s)", (name,))


def _branch(xid: Xid) -> str:
    return f"tp:{short_hash(str(xid), 40)}"


def _get_lock(session: Session, name: str) -> bool:
    [(taken,)] = session.rows("SELECT GET_LOCK(%s, 0)", (name,))
    return bool(taken == 1)
