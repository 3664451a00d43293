"""Phase 2: one commit names the data files and records the checkpoint as committed (I4).

    1. a commit since the piece was begun names its files       committed; the log is the proof
       it is another table, or lacks the predecessor            stop
    2. no manifest, or an abort of the piece has begun          committed if the lineage's mark says
                                                                so; else lost
       the log was cleaned since                                committed if the mark says so; else
                                                                stop if the table forgets marks
    3. the table was restored, or is altered                    stop, and say what to undo
    4. a data file is gone                                      lost
    5. commit on the latest snapshot, as a blind append         compatible with others'
                                                                appends, deletes, OPTIMIZE
    6. read the commit back

The mark is the version of the lineage's application id, committed in 5 with the files. The
transaction reads it: of two drivers that commit one checkpoint at once, one fails. It reads the
fence too, begun before the manifest is read: a driver that aborts a piece hides the manifest and
then writes the fence again, so that a commit of the piece either came before or fails. The
transaction never starts from the version of phase 1: with two checkpoints under way, the second
would conflict for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, another_target, commit_each, predecessor_missing
from twophase.errors import StopJobError
from twophase.internals.failpoints import failpoint
from twophase.sinks.common.java import brief
from twophase.sinks.delta.features import refusals
from twophase.sinks.delta.layout import differences
from twophase.sinks.delta.names import PieceName
from twophase.sinks.delta.pieces import InLog, Piece
from twophase.sinks.delta.records import Manifest
from twophase.sinks.delta.table import DeltaTable
from twophase.sinks.delta.table_lock import JvmLockedError
from twophase.sinks.delta.transaction import Transaction

_SHOWN = 3
_UNDO = "undo the change (RESTORE TABLE, ALTER TABLE), then start the job again: it commits them."


class Committer:
    """Commits pieces.

    Args:
        table: the table of the job's sink.
        recovering: the job has not started yet; work that a later commit can do is left to it.
    """

    def __init__(self, table: DeltaTable, *, recovering: bool) -> None:
        self._table = table
        self._log = table.log
        self._recovering = recovering

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        return commit_each(requests, self._commit_one)

    def _commit_one(self, request: CommitRequest) -> CommitOutcome:
        committable = request.committable
        transaction = self._table.transactions.begin()
        self._table.check_unchanged(transaction.snapshot)
        if self._recovering:
            transaction.defer_checkpoint()
        transaction.watch(self._app_id(committable))
        transaction.watch(self._table.owner.fence_id)
        piece = self._table.pieces.get(PieceName.of(committable.transaction))
        outcome = self._outcome(request, piece, transaction)
        if isinstance(outcome, Committed | AlreadyCommitted):
            failpoint("F04")
            self._table.save_high_water_mark(piece.name.lineage, self._log.snapshot())
            self._table.pieces.forget(piece.name)
        return outcome

    def _outcome(
        self, request: CommitRequest, piece: Piece, transaction: Transaction
    ) -> CommitOutcome:
        committable = request.committable
        named = self._table.pieces.named_by(piece)
        if isinstance(named, int):
            self._log.sync(named)
            return AlreadyCommitted(f"commit {named} of the table names its files")
        if piece.manifest is None:
            return self._by_mark(request, transaction) or self._lost(request, piece, transaction)
        if named is InLog.UNKNOWN:
            if (proof := self._by_mark(request, transaction)) is not None:
                return proof
            self._check_unforgotten(request, named, transaction)
        self._check_target(request, transaction)
        ready = self._ready(committable, piece, piece.manifest, transaction)
        if isinstance(ready, Lost):
            return ready
        return self._append(committable, piece.manifest, transaction)

    def _by_mark(self, request: CommitRequest, transaction: Transaction) -> AlreadyCommitted | None:
        """Step 2. A high-water mark proves every checkpoint below it: commits are in order."""
        app_id, highest = self._mark(request, transaction)
        piece = request.committable.transaction
        if highest >= piece.checkpoint:
            return AlreadyCommitted(f"version {highest} of {app_id}")
        return None

    def _mark(self, request: CommitRequest, transaction: Transaction) -> tuple[str, int]:
        app_id, proven = self._app_id(request.committable), transaction.snapshot.transactions
        return app_id, proven.get(app_id, -1)

    def _lost(self, request: CommitRequest, piece: Piece, transaction: Transaction) -> Lost:
        self._check_target(request, transaction)
        app_id, highest = self._mark(request, transaction)
        aborted = self._table.pieces.is_being_aborted(piece.name)
        gone = "is hidden by an abort" if aborted else "is gone"
        return Lost(f"{app_id} is at {highest}, and the manifest of piece {piece.name} {gone}")

    def _check_unforgotten(
        self, request: CommitRequest, named: InLog, transaction: Transaction
    ) -> None:
        """Check that a mark below a checkpoint proves that the table does not have it: one commit
        writes both. The commits that could name its files are gone.

        Raises:
            StopJobError: the table forgets application ids.
        """
        if transaction.snapshot.retention_ms is None:
            return
        self._check_target(request, transaction)
        app_id, highest = self._mark(request, transaction)
        what = f"{named.value}, {app_id} is at {highest}, and the table forgets application ids"
        raise self._stop(
            request.committable,
            what,
            remedy="find out whether the table has these rows. Then delete "
            f"{self._table.pieces.manifest_path(PieceName.of(request.committable.transaction))} "
            "and start the job again: it says how they are written again, and how it goes on "
            "without them (twophase repair accept-loss), as it has to if the table has them. Keep "
            "delta.logRetentionDuration longer than any outage.",
        )

    def _ready(
        self, committable: Committable, piece: Piece, manifest: Manifest, transaction: Transaction
    ) -> Lost | None:
        """Steps 3 and 4."""
        if piece.manifest_sha256 != committable.handle["manifest_sha256"]:
            return Lost(
                f"the manifest of piece {piece.name} is not the one of the checkpoint: its "
                "SHA-256 differs"
            )
        highest = self._highest(committable, transaction)
        if highest == committable.transaction.checkpoint:
            what = "the table has this checkpoint with files of another attempt"
            raise self._stop(committable, what)
        if self._was_restored(manifest, highest, transaction):
            raise self._stop(
                committable,
                f"{self._app_id(committable)} was at {manifest.intent.after} in version "
                f"{manifest.intent.base} of the table and is at {highest} in version "
                f"{transaction.snapshot.version}: an older copy of the table was restored",
            )
        now = transaction.snapshot.layout
        changes = [*differences(manifest.layout, now), *refusals(now)]
        if changes:
            what = f"the table was altered since it was written: {'; '.join(changes)}"
            raise self._stop(committable, what)
        missing = self._table.pieces.missing_files(manifest)
        return _files_lost(missing, len(manifest.actions)) if missing else None

    def _highest(self, committable: Committable, transaction: Transaction) -> int:
        snapshot = transaction.snapshot
        return snapshot.checksum_transactions.get(self._app_id(committable), -1)

    @staticmethod
    def _was_restored(manifest: Manifest, highest: int, transaction: Transaction) -> bool:
        """A table may forget application ids; then the log was searched for the files."""
        forgotten = highest < 0 and transaction.snapshot.retention_ms is not None
        return transaction.snapshot.version < manifest.intent.base or (
            highest < manifest.intent.after and not forgotten
        )

    def _append(
        self, committable: Committable, manifest: Manifest, transaction: Transaction
    ) -> Committed | RetryLater:
        """Steps 5 and 6. After any error here the commit may exist: the next call looks.

        Raises:
            StopJobError: this JVM can no longer commit to the table.
        """
        piece, app_id = committable.transaction, self._app_id(committable)
        mark = max(self._highest(committable, transaction), piece.checkpoint)
        try:
            failpoint("D01")
            with self._log.storage.commit_lock():
                place, note = (piece.lineage, piece.checkpoint), _commit_info(committable)
                version = transaction.commit(manifest.actions, app_id, mark, *place, note)
                failpoint("D02")
                if not self._log.shows(version, transaction.nonce):
                    other = f"commit {version} of the table is not the one that was written"
                    return RetryLater(other)
        except JvmLockedError as error:
            raise StopJobError(
                f"{piece} is decided and waits for its commit to {self._table.target}: "
                f"{error.what}",
                remedy=error.remedy,
            ) from error
        except Exception as error:  # noqa: BLE001 whatever it is, the log shows the outcome
            return RetryLater(f"{type(error).__name__}: {brief(error)[:400]}")
        return Committed()

    def _check_target(self, request: CommitRequest, transaction: Transaction) -> None:
        """Check that this is the table of a piece without proof, and has its predecessor."""
        committable, before = request.committable, request.predecessor
        if committable.target != self._table.target:
            raise another_target(committable, self._table.target)
        if before is not None and not self._table.has(
            before.lineage, before.checkpoint, transaction.snapshot
        ):
            raise predecessor_missing(request, self._table.target)

    def _app_id(self, committable: Committable) -> str:
        return self._table.owner.app_id(committable.transaction.lineage)

    def _stop(self, committable: Committable, what: str, remedy: str = _UNDO) -> StopJobError:
        return StopJobError(
            f"{committable.transaction} is decided and cannot be committed to "
            f"{self._table.target}: {what}. "
            f"{committable.rows} rows wait in data files that no commit names.",
            remedy=remedy,
        )


def _files_lost(missing: Sequence[str], total: int) -> Lost:
    return Lost(
        f"{len(missing)} of {total} data files are missing or have another length, such as "
        f"{missing[:_SHOWN]}: deleted by hand, or by a VACUUM whose retention is shorter than the "
        "time since the pre-commit"
    )


def _commit_info(committable: Committable) -> dict[str, dict[str, object]]:
    """Return the note about a piece in the commit that makes it visible."""
    piece = committable.transaction
    return {
        "twophase": {
            "job": piece.job,
            "sink": piece.sink,
            "lineage": piece.lineage,
            "checkpoint": piece.checkpoint,
            "attempt": str(piece.attempt),
            "offsets_sha256": piece.offsets_hash,
            "rows": committable.rows,
        }
    }
