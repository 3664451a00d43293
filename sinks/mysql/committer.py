"""Phase 2, on the driver: XA COMMIT, and what its answers are worth.

The server's "unknown branch" (1397) proves nothing: committed before, rolled back by hand, never there, or held by the
session that prepared it. What decides is the row that the branch wrote into the ledger (H1, H4, H11, H49):

    1. the row, by a locking read     there: committed; somebody holds it: not yet
    2. the high-water mark            covers the checkpoint: committed
    3. XA RECOVER                     listed: not yet; a session that is still there is ended (H2)
    4. the row again                  there: committed between 1 and 3; else the piece is lost
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum, auto

import pymysql

from sinks.mysql.binding import Binding
from sinks.mysql.codes import (
    LOCK_WAIT_TIMEOUT,
    NOT_NOW,
    XA_ROLLED_BACK,
    XAER_NOTA,
    code_of,
    is_connection_lost,
)
from sinks.mysql.connection import Session
from sinks.mysql.driver import DriverLink
from sinks.mysql.orphans import prepared, xid_of
from sinks.mysql.slots import wait_until_left
from sinks.mysql.xid import Xid
from twophase.errors import TargetChangedError, TargetUnreachableError
from twophase.failpoints import failpoint
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.protocol.sink import CommitRequest

_LEAVING_S = 0.5
"""How long a session that has prepared may take to close before we look again."""


class _Row(Enum):
    THERE = auto()
    HELD = auto()
    ABSENT = auto()


class Committer:
    """Commits branches.

    Args:
        binding: what `open` found out.
        link: the driver's session.
    """

    def __init__(self, binding: Binding, link: DriverLink) -> None:
        self._binding = binding
        self._link = link

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `Sink.commit`."""
        for request in requests:
            self._check_target(request.committable)
        outcomes: list[CommitOutcome] = []
        unreachable: RetryLater | None = None
        for number, request in enumerate(requests):
            failpoint("C13" if number else "C12")
            try:
                # One failed connection a call: waiting for a dead server once for each branch would take for ever.
                outcomes.append(unreachable or self._commit_one(request))
            except TargetUnreachableError as error:
                unreachable = RetryLater(str(error))
                outcomes.append(unreachable)
        failpoint("C15")
        return outcomes

    def _check_target(self, committable: Committable) -> None:
        if committable.target != self._binding.target:
            raise TargetChangedError(
                f"{committable.transaction} was pre-committed in {committable.target}, this sink is connected to "
                f"{self._binding.target}. Nothing of it is committed here.",
                remedy="point the sink at the target it was started with; after a failover, find out what the new server has.",
            )

    def _commit_one(self, request: CommitRequest) -> CommitOutcome:
        xid = xid_of(request.committable)
        try:
            with self._link.session() as session:
                if _xa_commit(session, xid):
                    return Committed()
                return self._decide(session, request, xid)
        except pymysql.Error as error:
            if is_connection_lost(error) or code_of(error) in NOT_NOW:
                # Perhaps executed, the reply lost (H4): the next call asks the ledger. The data is never written again.
                return RetryLater(f"XA COMMIT {xid}: {error.args[-1]} ({code_of(error)})")
            raise

    def _decide(self, session: Session, request: CommitRequest, xid: Xid) -> CommitOutcome:
        """What an unknown branch means."""
        committable = request.committable
        row = self._look(session, committable)
        if row is _Row.ABSENT and self._is_subsumed(session, committable):
            return AlreadyCommitted("high-water mark")
        if row is _Row.HELD or (row is _Row.ABSENT and xid in prepared(session, self._binding.owner)):
            # The first time it is most likely just closing; later it is ended: its task has reported long ago (H2).
            deadline = time.monotonic() + _LEAVING_S
            if wait_until_left(session, xid, deadline, killing=request.retries > 0) and _xa_commit(session, xid):
                return Committed()
            return RetryLater(f"the branch {xid} is still held by the session that prepared it")
        if row is _Row.ABSENT:
            row = self._look(session, committable)
        if row is _Row.THERE:
            return AlreadyCommitted("ledger row")
        if row is _Row.HELD:
            return RetryLater(f"the ledger row of the branch {xid} is locked")
        if self._is_subsumed(session, committable):
            return AlreadyCommitted("high-water mark")
        return Lost(
            f"branch {xid}: XA COMMIT does not know it, XA RECOVER does not list it, the ledger has no row of it (read "
            "twice, with a lock), and the high-water mark of its lineage is below its checkpoint"
        )

    def _look(self, session: Session, committable: Committable) -> _Row:
        try:
            there = self._binding.books.has_ledger(session, committable.transaction, committable.subtask)
        except pymysql.Error as error:
            if code_of(error) == LOCK_WAIT_TIMEOUT:
                return _Row.HELD
            raise
        return _Row.THERE if there else _Row.ABSENT

    def _is_subsumed(self, session: Session, committable: Committable) -> bool:
        transaction = committable.transaction
        mark = self._binding.books.high_water(session, transaction.job, transaction.sink, transaction.lineage)
        return transaction.checkpoint <= mark


def _xa_commit(session: Session, xid: Xid) -> bool:
    """Whether the server has committed the branch; False if it says that there is none."""
    try:
        session.run(f"XA COMMIT {xid.sql}")
    except pymysql.Error as error:
        if code_of(error) == XAER_NOTA or code_of(error) in XA_ROLLED_BACK:
            return False
        raise
    failpoint("C14")
    return True
