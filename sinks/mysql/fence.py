"""The fence, which closes older attempts for good (H44, I7).

    1. read the fence          a higher generation: this driver is the one that is closed
    2. end our sessions        all belong to older attempts: those of this attempt start later
    3. raise the fence         an open branch of an older attempt blocks it; then from 1 again
    4. end our sessions        those that read the old fence have prepared, or are ended here

Once 4 finds no session, every later session reads the new fence.
"""

from __future__ import annotations

import time

import pymysql

from twophase.contract.fencing import driver_is_fenced
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.mysql.checkpoint_column import MarkedRows
from twophase.sinks.mysql.client.codes import LOCK_WAIT_TIMEOUT, code_of
from twophase.sinks.mysql.client.driver_session import DriverLink
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_exit import wait_until_gone
from twophase.sinks.mysql.client.session_locks import SessionLocks, kill
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.orphans import prepared
from twophase.sinks.mysql.xid import Owner


class Fence:
    """The fence of one job and sink.

    Args:
        link: the driver's session.
        owner: the job and sink.
        metadata: the metadata tables.
        timeout_s: how long to wait for sessions of older attempts to end.
        marked: whether each row names its checkpoint.
    """

    def __init__(
        self,
        link: DriverLink,
        owner: Owner,
        metadata: MetadataTables,
        timeout_s: float,
        *,
        marked: bool,
    ) -> None:
        self._link = link
        self._owner = owner
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._marked = marked

    def raise_to(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        deadline = time.monotonic() + self._timeout_s
        with self._link.session() as session:
            while True:
                fence = self._read(session, attempt)
                if fence is not None and fence > attempt:
                    return
                living = self._end_sessions(session, deadline)
                if not living and (fence == attempt or self._try_to_raise(session, attempt)):
                    break
                if time.monotonic() >= deadline:
                    raise self._blocked(session, attempt, living)
            if living := self._end_sessions(session, deadline):
                raise self._blocked(session, attempt, living)

    def _read(self, session: Session, attempt: Attempt) -> Attempt | None:
        owner = self._owner
        fence = self._metadata.read_fence(session, owner.job, owner.sink)
        if fence is not None and fence.generation > attempt.generation:
            raise driver_is_fenced(owner.job, owner.sink, fence, attempt)
        return fence

    def _end_sessions(self, session: Session, deadline: float) -> set[int]:
        """End all our writers' sessions and wait until they are gone; return those that remain."""
        while holders := SessionLocks(self._owner).holders(session):
            kill(session, holders)
            left = wait_until_gone(session, holders, deadline)
            if left:
                return left
        return set()

    def _try_to_raise(self, session: Session, attempt: Attempt) -> bool:
        """Raise the fence; return False if somebody holds it locked or has raised it further."""
        owner, metadata = self._owner, self._metadata
        try:
            if self._marked:
                session.begin()
                MarkedRows(metadata).take_over(session, owner.job, owner.sink, attempt)
                metadata.raise_fence(session, owner.job, owner.sink, attempt)
                session.commit()
            else:
                metadata.raise_fence(session, owner.job, owner.sink, attempt)
        except pymysql.Error as error:
            if code_of(error) == LOCK_WAIT_TIMEOUT:
                session.rollback()
                return False
            raise
        return self._read(session, attempt) == attempt

    def _blocked(
        self, session: Session, attempt: Attempt, living: set[int]
    ) -> TargetUnreachableError:
        owner = self._owner
        branches = ", ".join(str(xid) for xid in prepared(session, owner)[:5])
        return TargetUnreachableError(
            f"The fence of sink {owner.sink!r} of job {owner.job!r} could not be raised to "
            f"{attempt} within {self._timeout_s:g} s. "
            f"Sessions: {sorted(living) or 'none'}. Prepared: {branches or 'none'}.",
            remedy="end those sessions (KILL), or, if nothing is named, the one that locks "
            "twophase_fence (information_schema.INNODB_TRX), then start the job again: it commits "
            "or aborts those branches itself. If it is refused, end them by hand "
            "(docs/by-hand.md): a target that was restored from a backup may have some.",
        )
