"""Takes committed checkpoints back: one commit removes their files and lowers the marks (H28).

    1. search the log       for the files that the checkpoints have added (`log_search`); refused if
                            one is not in the table any more as it was added, or the log was
                            cleaned since
    2. commit               the removal of exactly these files, and for each lineage the version of
                            its application id, lowered to what stays of it; behind the fence
    3. clean up             the records and marks beside the table

The transaction watches the fence and the application ids, and Delta lets it fail if anybody else
has removed one of the files meanwhile: then all of it is done again from 1. Rows that others have
appended stay. A mark beside the table goes after the commit, so that `history` shows the sink
ahead until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twophase.errors import (
    FencedError,
    RestoreRefusedError,
    StopJobError,
    TargetUnreachableError,
)
from twophase.failpoints import failpoint
from twophase.ids import Attempt
from twophase.protocol.fencing import driver_is_fenced
from twophase.sinks.common.kept import Kept
from twophase.sinks.delta.bound_sink import BoundSink
from twophase.sinks.delta.features import refusals
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.log import Snapshot, Transaction
from twophase.sinks.delta.log_search import LogSearch, UnprovenError
from twophase.sinks.delta.marks import Marks
from twophase.sinks.delta.orphans import Orphans
from twophase.sinks.delta.table_lock import JvmLockedError

_TRIES = 10


class Rewind:
    """Takes back what `keep` does not keep.

    Args:
        bound: the result of `open`.
        keep: see `CanRewind`.
    """

    def __init__(self, bound: BoundSink, keep: Mapping[str, int]) -> None:
        self._bound_sink = bound
        self._owner = bound.owner
        self._keep = Kept(keep)

    def check(self, snapshot: Snapshot) -> Sequence[str]:
        """See `CanRewind.check_rewind`; return Delta's action of each file to remove."""
        self._bound_sink.check(snapshot)
        ahead = self._ahead(snapshot)
        if not ahead:
            return []
        try:
            added = LogSearch(self._owner, self._bound_sink.log, self._keep).added(snapshot, ahead)
        except UnprovenError as error:
            raise self._refused(str(error)) from error
        if added and snapshot.is_append_only:
            raise self._refused("the table is append-only (delta.appendOnly)")
        if problems := refusals(snapshot.shape):
            raise self._refused("; ".join(problems))
        return added

    def carry_out(self, attempt: Attempt) -> None:
        """See `CanRewind.rewind`."""
        failure: Exception | None = None
        for _ in range(_TRIES):
            transaction = self._begin(attempt)
            snapshot = transaction.snapshot
            added, lowered = self.check(snapshot), self._lowered(snapshot)
            self._forget_records(snapshot)
            if not added and not self._is_above(snapshot):
                self._remove_marks(snapshot)
                return
            try:
                failpoint("D03")
                self._commit(transaction, added, lowered, attempt)
                failpoint("D04")
            except JvmLockedError as error:
                raise StopJobError(
                    f"{self._cannot()}: {error.what}", remedy=error.remedy
                ) from error
            except Exception as error:  # noqa: BLE001 the next look at the log shows the outcome
                failure = error
        raise TargetUnreachableError(
            f"{self._cannot()} in {_TRIES} tries: {failure}.",
            remedy="see whether the table's folder can be written, then start the job again.",
        )

    def _begin(self, attempt: Attempt) -> Transaction:
        """Begin a transaction that fails once a newer driver has raised the fence.

        Raises:
            FencedError: it has.
        """
        transaction = self._bound_sink.log.transaction()
        self._bound_sink.check(transaction.snapshot)
        transaction.defer_checkpoint()
        transaction.watch(self._owner.fence_id)
        fence = Fence(self._bound_sink).read(transaction.snapshot)
        if attempt.is_closed_by(fence):
            raise self._fenced(fence or Attempt(0, 0), attempt)
        return transaction

    def _ahead(self, snapshot: Snapshot) -> dict[str, int]:
        return self._keep.beyond(self._bound_sink.committed(snapshot))

    def _lowered(self, snapshot: Snapshot) -> dict[str, int]:
        """Return the version to give to the application id of each lineage that is ahead."""
        return {
            self._owner.app_id(lineage): self._keep.of(lineage) for lineage in self._ahead(snapshot)
        }

    def _is_above(self, snapshot: Snapshot) -> bool:
        """Return whether the log itself shows a lineage ahead, not only a mark beside the table."""
        return any(
            not self._keep.has(lineage, version)
            for app_id, version in snapshot.transactions.items()
            if (lineage := self._owner.lineage_of(app_id)) is not None
        )

    def _commit(
        self,
        transaction: Transaction,
        added: Sequence[str],
        lowered: Mapping[str, int],
        attempt: Attempt,
    ) -> None:
        """Step 2. If another process has replaced the commit, the next look at the log tells."""
        log, owner = self._bound_sink.log, self._owner
        for app_id in lowered:
            transaction.watch(app_id)
        taken_back = {owner.lineage_of(app_id): version for app_id, version in lowered.items()}
        note = {
            "twophase": {
                "job": owner.job,
                "sink": owner.sink,
                "attempt": str(attempt),
                "taken_back": taken_back,
            }
        }
        with log.storage.commit_lock():
            log.shows(transaction.remove(added, lowered, attempt.generation, note), transaction)

    def _forget_records(self, snapshot: Snapshot) -> None:
        """Remove what is left of committed pieces: no later fold names their lineages."""
        for lineage, checkpoint in self._ahead(snapshot).items():
            Orphans(self._bound_sink).forget_committed(lineage, checkpoint)

    def _remove_marks(self, snapshot: Snapshot) -> None:
        """Step 3. Only what that snapshot proves to be taken back: a newer driver may go on."""
        Marks(self._owner, self._bound_sink.log.storage).remove_after(self._keep, snapshot)
        for lineage in self._keep.last:
            self._bound_sink.mark(lineage, snapshot)

    def _fenced(self, fence: Attempt, attempt: Attempt) -> FencedError:
        return driver_is_fenced(self._owner.job, self._owner.sink, fence, attempt)

    def _cannot(self) -> str:
        return (
            f"Sink {self._owner.sink!r} of job {self._owner.job!r} cannot take its checkpoints "
            f"back from {self._bound_sink.target}"
        )

    def _refused(self, why: str) -> RestoreRefusedError:
        return RestoreRefusedError(
            f"{self._cannot()}: {why}. Nothing was removed.",
            remedy="undo that (RESTORE TABLE, ALTER TABLE), or restore a newer checkpoint.",
        )
