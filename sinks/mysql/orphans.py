"""Prepared branches on the server: finds ours and rolls them back."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pymysql

from twophase.contract.committable import Committable
from twophase.errors import StopJobError, TargetUnreachableError
from twophase.internals.failpoints import failpoint
from twophase.sinks.mysql.client.codes import (
    LOCK_WAIT_TIMEOUT,
    XA_ROLLED_BACK,
    XAER_NOTA,
    XAER_RMERR,
    code_of,
)
from twophase.sinks.mysql.client.driver_session import DriverLink
from twophase.sinks.mysql.client.refusals import BranchesHiddenError
from twophase.sinks.mysql.client.session import Row, Session
from twophase.sinks.mysql.client.session_exit import wait_until_left
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.xid import Owner, Xid

_POLL_S = 0.05


def prepared(session: Session, owner: Owner) -> list[Xid]:
    """Return all prepared branches of a job and sink, oldest checkpoint first.

    Raises:
        BranchesHiddenError: the account may not ask.
    """
    listed = (Xid.from_recover((row[0], row[1], row[2], row[3])) for row in list_branches(session))
    ours = [xid for xid in listed if xid is not None and xid.belongs_to(owner)]
    return sorted(ours, key=lambda xid: (xid.identify(owner)[0].checkpoint, str(xid)))


def list_branches(session: Session) -> list[Row]:
    """Return all prepared branches on the server, as XA RECOVER lists them.

    Raises:
        BranchesHiddenError: the account may not ask.
    """
    try:
        return session.raw_rows("XA RECOVER")
    except pymysql.Error as error:
        if code_of(error) != XAER_RMERR:
            raise
        raise BranchesHiddenError(
            XAER_RMERR, "The account may not list prepared branches (XA RECOVER)"
        ) from error


def xid_of(committable: Committable) -> Xid:
    """Return the branch of a committable. Text in another format never reaches the server."""
    return Xid(str(committable.handle.get("gtrid", "")), str(committable.handle.get("bqual", "")))


class Orphans:
    """Finds and aborts prepared branches.

    Args:
        link: the driver's session.
        owner: the job and sink that they belong to.
        metadata: the metadata tables.
        target: the target's identity.
        timeout_s: how long to wait for the end of another session.
    """

    def __init__(
        self,
        link: DriverLink,
        owner: Owner,
        metadata: MetadataTables,
        target: str,
        timeout_s: float,
    ) -> None:
        self._link = link
        self._owner = owner
        self._metadata = metadata
        self._target = target
        self._timeout_s = timeout_s

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`. The server does not know how many rows a branch holds."""
        owner = self._owner
        with self._link.session() as session:
            found = prepared(session, owner)
        return [
            Committable(
                *xid.identify(owner),
                self._target,
                0,
                {"gtrid": xid.gtrid, "bqual": xid.bqual},
            )
            for xid in found
        ]

    def wait_for_commits(self) -> None:
        """Wait until the commits of other drivers that are in flight have ended.

        A branch that is being committed is not listed any more, and its rows are not visible yet
        (H49). A driver over a copy of the job's folder, which does not know of it, would
        overlook it.

        Raises:
            TargetUnreachableError: one has not ended before the deadline.
        """
        owner = self._owner
        deadline = time.monotonic() + self._timeout_s
        while True:
            with self._link.session() as session:
                try:
                    return self._metadata.wait_for_ledger(session, owner.job, owner.sink)
                except pymysql.Error as error:
                    if code_of(error) != LOCK_WAIT_TIMEOUT:
                        raise
                if prepared(session, owner):
                    return None
            if time.monotonic() >= deadline:
                raise TargetUnreachableError(
                    f"A commit of sink {owner.sink!r} of job {owner.job!r} by another driver has "
                    f"not ended within {self._timeout_s:g} s.",
                    remedy="find its session (information_schema.INNODB_TRX) and end it (KILL), "
                    "then start the job again.",
                )

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        for number, committable in enumerate(committables):
            if number:
                failpoint("C20")
            self._abort_one(committable)

    def _abort_one(self, committable: Committable) -> None:
        xid = xid_of(committable)
        deadline = time.monotonic() + self._timeout_s
        while True:
            with self._link.session() as session:
                held = wait_until_left(session, {xid}, deadline, killing=True)
                if not held:
                    _xa_rollback(session, xid)
                    if self._is_gone(session, committable, xid):
                        return
            if time.monotonic() >= deadline:
                session_held = f"session {xid.session} is still there"
                reason = session_held if held else "its locks are still held"
                raise TargetUnreachableError(
                    f"The branch {xid} of {committable.transaction} could not be rolled back "
                    f"within {self._timeout_s:g} s: {reason}.",
                    remedy="end that session (SHOW PROCESSLIST, KILL); if XA RECOVER does not list "
                    "the branch, restart the server, which brings it back. Then restart the job.",
                )
            time.sleep(_POLL_S)

    def _is_gone(self, session: Session, committable: Committable, xid: Xid) -> bool:
        """Return whether nothing is left of a branch that the server no longer lists.

        A locked ledger row means that the engine still has the branch, whatever the server reports
        (session_exit.py).
        """
        if xid in prepared(session, self._owner):
            return False
        try:
            committed = self._metadata.has_ledger(
                session, committable.transaction, committable.subtask, lock=True
            )
        except pymysql.Error as error:
            if code_of(error) == LOCK_WAIT_TIMEOUT:
                return False
            raise
        if committed:
            raise StopJobError(
                f"The branch {xid} of {committable.transaction} should have been rolled back, but "
                "is committed: its rows are visible.",
                remedy="find out who committed it (any account can on MariaDB); "
                "then remove its rows by hand, and its row of twophase_ledger (docs/by-hand.md).",
            )
        return True


def _xa_rollback(session: Session, xid: Xid) -> None:
    """Send XA ROLLBACK; the ledger tells whether it took effect."""
    try:
        session.run(f"XA ROLLBACK {xid.sql}")
    except pymysql.Error as error:
        if code_of(error) != XAER_NOTA and code_of(error) not in XA_ROLLED_BACK:
            raise
