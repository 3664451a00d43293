"""The fence of a job and sink: the version of an application id in the table's own log (I7).

A transaction that has read it raises it, so that two drivers cannot raise it past each other. A
writer announces itself (its intent), reads the fence, writes, lists its files (its manifest) and
reads the fence again. If it sees the old fence the second time, its manifest existed before the
fence was raised, and the scan after the raise finds it. Otherwise the writer removes its own piece.
A task that goes on after that leaves a data file that no commit names: no reader sees it, and
VACUUM removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twophase.contract.fencing import attempt_is_closed, raised_fence
from twophase.errors import StopJobError, TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.delta.log import Snapshot
from twophase.sinks.delta.names import fence_attempt, fence_version
from twophase.sinks.delta.table import DeltaTable
from twophase.sinks.delta.table_lock import JvmLockedError
from twophase.sinks.delta.transaction import Transaction

_TRIES = 100
_LOCK_TRIES = 6


class Fence:
    """The fence of one job and sink.

    Args:
        table: the table of the job's sink.
    """

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._owner = table.owner

    def read(self, snapshot: Snapshot) -> Attempt | None:
        """Return the fence: attempts below it may not pre-commit; None if there is none."""
        return self._fence_in(snapshot.transactions)

    def _fence_in(self, transactions: Mapping[str, int]) -> Attempt | None:
        version = transactions.get(self._owner.fence_id)
        return None if version is None else fence_attempt(version)

    def check(self, snapshot: Snapshot, attempt: Attempt) -> None:
        """Check that an attempt is open, by the checksum file of the newest version.

        A piece that passes wrongly is found in doubt.

        Raises:
            FencedError: a later attempt has closed it.
            FenceLostError: the fence is missing or older: the table was restored, or has forgotten
                its application id.
        """
        fence = self._fence_in(snapshot.checksum_transactions)
        if attempt.is_closed_by(fence):
            raise attempt_is_closed(self._owner.job, self._owner.sink, attempt, "the table", fence)

    def raise_to(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        owner = self._owner
        self._write(
            lambda fence: raised_fence(owner.job, owner.sink, fence, attempt),
            f"raised to {attempt}",
        )

    def write_again(self) -> None:
        """Commit the fence as it is: commits of pieces that are in flight fail, as they watch it.

        Those that are not in the log by now cannot get there without a new transaction, which
        looks at the piece's records again.
        """
        self._write(lambda fence: fence, "written again")

    def _write(self, wanted: Callable[[Attempt], Attempt | None], what: str) -> None:
        """Commit what is wanted behind the current fence, until the log shows it or wants none."""
        owner = self._owner
        failure: Exception | None = None
        tries = locked = 0
        while tries < _TRIES and locked < _LOCK_TRIES:
            tries += 1
            transaction = self._table.transactions.begin()
            self._table.check_unchanged(transaction.snapshot)
            transaction.defer_checkpoint()
            transaction.watch(owner.fence_id)
            attempt = wanted(self.read(transaction.snapshot) or Attempt(0, 0))
            if attempt is None:
                return
            try:
                if self._commit(transaction, attempt):
                    return
            except JvmLockedError as error:
                raise StopJobError(
                    f"The fence of sink {owner.sink!r} of job {owner.job!r} cannot be {what}: "
                    f"{error.what}",
                    remedy=error.remedy,
                ) from error
            except Exception as error:  # noqa: BLE001 the next look at the log shows the outcome
                failure = error
                locked += isinstance(error, TimeoutError)
        raise TargetUnreachableError(
            f"The fence of sink {owner.sink!r} of job {owner.job!r} could not be {what} in "
            f"{tries} tries: {failure}.",
            remedy="check whether the table's folder is writable, then start the job again.",
        )

    def _commit(self, transaction: Transaction, attempt: Attempt) -> bool:
        """Commit the fence; return whether the log shows it."""
        log, owner = self._table.log, self._owner
        note = {"twophase": {"job": owner.job, "sink": owner.sink, "fence": str(attempt)}}
        with log.storage.commit_lock():
            version, generation = fence_version(attempt), attempt.generation
            committed = transaction.commit_ahead(
                owner.fence_id, version, owner.fence_id, generation, note
            )
            return log.shows(committed, transaction.nonce)
