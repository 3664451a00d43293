"""Phase 2, on the driver: XA COMMIT, and the proof that it took effect.

Neither reply proves anything. "OK" may come for a branch that its session has not released yet,
with nothing committed (session_exit.py); "unknown branch" (1397) may mean committed before, rolled
back by hand, never there, or held by a session. The row that the branch wrote into the ledger
decides (H1, H4, H11, H49):

    0. wait until the session that prepared the branch is gone; on a retry end it (H2)
       the predecessor         its row or the mark, in the session of 1: a session never
                               changes its server
    1. XA COMMIT               OK: committed if the row is there
    2. the row, with a lock    there: committed; locked by somebody: not yet
    3. the high-water mark     covers the checkpoint: committed
    4. XA RECOVER              lists the branch: not yet
    5. 2 and 3 again           committed in between; else the piece is lost
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from enum import Enum, auto

import pymysql

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, Predecessor, another_target, predecessor_missing
from twophase.errors import TargetChangedError, TargetUnreachableError
from twophase.internals.failpoints import failpoint
from twophase.sinks.mysql.altered_table import why_to_wait
from twophase.sinks.mysql.client.codes import (
    LOCK_WAIT_TIMEOUT,
    XA_ROLLED_BACK,
    XAER_NOTA,
    code_of,
)
from twophase.sinks.mysql.client.driver_session import DriverLink
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_exit import wait_until_left
from twophase.sinks.mysql.identity import TableIdentity, read_identity, why_another
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.orphans import prepared, xid_of
from twophase.sinks.mysql.target_table import TargetTable
from twophase.sinks.mysql.xid import Owner, Xid

_LEAVING_S = 2.0


class _Row(Enum):
    THERE = auto()
    HELD = auto()
    ABSENT = auto()


class Committer:
    """Commits branches.

    Args:
        link: the driver's session.
        owner: the job and sink that they belong to.
        metadata: the metadata tables.
        target: the target's identity.
        table: the table that has the rows of the predecessor.
        left_behind: branches whose table was altered since (`altered_table`).

    Attributes:
        table: the same table as last seen; it may have been rebuilt since.
    """

    def __init__(
        self,
        link: DriverLink,
        owner: Owner,
        metadata: MetadataTables,
        target: str,
        table: TableIdentity,
        left_behind: Collection[Xid] = (),
    ) -> None:
        self.table = table
        self._left_behind = left_behind
        self._link = link
        self._owner = owner
        self._metadata = metadata
        self._target = target
        self._verified: tuple[Session, Predecessor] | None = None

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        xids = [xid_of(request.committable) for request in requests]
        try:
            self._check_elsewhere(requests, xids)
            held = self._still_held(requests, xids)
        except TargetUnreachableError as error:
            return [RetryLater(str(error))] * len(requests)
        outcomes: list[CommitOutcome] = []
        for number, (request, xid) in enumerate(zip(requests, xids, strict=True)):
            failpoint("C13" if number else "C12")
            if xid in held:
                outcomes.append(
                    RetryLater(
                        f"session {xid.session}, which prepared the branch {xid}, "
                        "is still connected"
                    )
                )
            else:
                outcomes.append(self._commit_one(request, xid))
        failpoint("C15")
        return outcomes

    def _check_elsewhere(self, requests: Sequence[CommitRequest], xids: Sequence[Xid]) -> None:
        """Check that pieces of another target have proof here, or, of this table's name, branches.

        A server that has taken over from another one has both, and the id of the metadata tables
        that is in the name of a branch. The proof decides, not the id of the server.
        """
        if all(request.committable.target == self._target for request in requests):
            return
        with self._link.session() as session:
            here = prepared(session, self._owner)
            for request, xid in zip(requests, xids, strict=True):
                piece = request.committable
                may_be_here = _table_of(piece.target) == _table_of(self._target)
                if piece.target == self._target or (may_be_here and xid in here):
                    continue
                if self._proof(session, piece) is None:
                    raise another_target(piece, self._target)

    def _proof(self, session: Session, committable: Committable) -> AlreadyCommitted | None:
        """Return the proof of a piece not to commit by this call. A commit in flight has none."""
        if self._has_row(session, committable):
            return AlreadyCommitted("ledger row")
        if self._is_subsumed(session, committable):
            return AlreadyCommitted("high-water mark")
        return None

    def _still_held(self, requests: Sequence[CommitRequest], xids: Collection[Xid]) -> set[Xid]:
        """Return the branches whose sessions exist; the first try gives them time to close."""
        again = any(request.retries > 0 for request in requests)
        with self._link.session() as session:
            return wait_until_left(session, xids, time.monotonic() + _LEAVING_S, killing=again)

    def _commit_one(self, request: CommitRequest, xid: Xid) -> CommitOutcome:
        committable = request.committable
        try:
            with self._link.session() as session:
                if not self._has_predecessor(session, request):
                    if (proof := self._proof(session, committable)) is not None:
                        return proof
                    raise predecessor_missing(request, self._target)
                is_left = xid in self._left_behind and committable.target == self._target
                if is_left and (reason := why_to_wait(session, self._owner, self.table, [xid])):
                    return RetryLater(reason)
                if not _xa_commit(session, xid):
                    return self._decide(session, committable, xid)
                failpoint("C14")
                if self._has_row(session, committable):
                    return Committed()
                return RetryLater(f"the server acknowledged XA COMMIT {xid} and committed nothing")
        except TargetUnreachableError as error:
            return RetryLater(str(error))

    def _has_predecessor(self, session: Session, request: CommitRequest) -> bool:
        """Return whether the predecessor is proven.

        Asked once per session: a proof does not go away while the session lives.
        """
        before, owner = request.predecessor, self._owner
        if before is None or self._verified == (session, before):
            return True
        if not self._metadata.has_checkpoint(
            session, owner.job, owner.sink, before.lineage, before.checkpoint
        ):
            return False
        self._check_table(session, request)
        self._verified = session, before  # not its number: numbering restarts with the server
        return True

    def _check_table(self, session: Session, request: CommitRequest) -> None:
        """Check that this table has the predecessor's rows. A branch keeps it from a DROP."""
        now = read_identity(session, self.table.schema, self.table.name)
        if now is None or now == self.table:
            return  # no table: the reply to XA COMMIT tells what happens to the branch
        targets, job, sink = TargetTable(self._metadata.schema), self._owner.job, self._owner.sink
        if reason := why_another(session, self.table, now, targets.accept_sql(job, sink)):
            raise TargetChangedError(
                f"{request.committable.transaction} is decided but was not committed to "
                f"{self._target}: {reason}.",
                remedy="restore the table as it was, or, if it is the same, run that statement; "
                "then start the job again.",
            )
        self.table = now
        targets.write(session, job, sink, now)

    def _decide(self, session: Session, committable: Committable, xid: Xid) -> CommitOutcome:
        """Return the outcome of a branch that XA COMMIT does not know."""
        for look in ("first", "second"):
            row = self._look_up_row(session, committable)
            if row is _Row.THERE:
                return AlreadyCommitted("ledger row")
            if row is _Row.HELD:
                return RetryLater(
                    f"the ledger row of the branch {xid} is locked; "
                    "if this goes on and XA RECOVER does not list the branch, only a restart of "
                    "the server brings it back"
                )
            if self._is_subsumed(session, committable):
                return AlreadyCommitted("high-water mark")
            if look == "first" and xid in prepared(session, self._owner):
                return RetryLater(f"the branch {xid} is prepared, and the server did not commit it")
        return Lost(
            f"branch {xid}: XA COMMIT does not know it, XA RECOVER does not list it, "
            "the ledger has no row of it (read twice, with a lock), and the high-water mark of "
            "its lineage is below its checkpoint"
        )

    def _look_up_row(self, session: Session, committable: Committable) -> _Row:
        try:
            there = self._has_row(session, committable, lock=True)
        except pymysql.Error as error:
            if code_of(error) == LOCK_WAIT_TIMEOUT:
                return _Row.HELD
            raise
        return _Row.THERE if there else _Row.ABSENT

    def _has_row(self, session: Session, committable: Committable, *, lock: bool = False) -> bool:
        transaction, subtask = committable.transaction, committable.subtask
        return self._metadata.has_ledger(session, transaction, subtask, lock=lock)

    def _is_subsumed(self, session: Session, committable: Committable) -> bool:
        transaction = committable.transaction
        mark = self._metadata.high_water(
            session, transaction.job, transaction.sink, transaction.lineage
        )
        return transaction.checkpoint <= mark


def _xa_commit(session: Session, xid: Xid) -> bool:
    """Send XA COMMIT; return False if the server knows no such branch."""
    try:
        session.run(f"XA COMMIT {xid.sql}")
    except pymysql.Error as error:
        if code_of(error) in XA_ROLLED_BACK | {XAER_NOTA}:
            return False
        raise
    return True


def _table_of(target: str) -> str:
    """Return the table in a target's identity, without the server."""
    return target.partition("/")[2]
