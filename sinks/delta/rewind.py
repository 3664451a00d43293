"""Rewinds a table: one commit removes files of checkpoints and lowers the marks (H28).

    1. search the log       for the files that the checkpoints have added; refused if one is not in
                            the table any more as it was added, or the log was cleaned since
    2. commit               the removal of exactly these files, and for each lineage the version of
                            its application id, lowered to what stays of it; behind the fence
    3. clean up             the records and marks next to the table

The transaction watches the fence and the application ids, and Delta lets it fail if another writer
has removed one of the files meanwhile: then all of it is repeated from 1. Rows that others have
appended stay.

The log is read backwards from the newest version, to one at which none of the checkpoints was
committed. So all commits that may name one of the files are read, and the first of them that does
is the latest: it tells whether the file is still in the table as it was added.

A mark next to the table goes after the commit, so that `history` shows the sink
ahead until then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twophase.contract.fencing import driver_is_fenced
from twophase.errors import (
    RestoreRefusedError,
    StopJobError,
    TargetUnreachableError,
)
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.sinks.common.rewind_point import RewindPoint
from twophase.sinks.delta.features import refusals
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.high_water_marks import HighWaterMarks
from twophase.sinks.delta.log import Log, Snapshot
from twophase.sinks.delta.names import Owner, piece_of
from twophase.sinks.delta.orphans import Orphans
from twophase.sinks.delta.table import DeltaTable
from twophase.sinks.delta.table_lock import JvmLockedError
from twophase.sinks.delta.transaction import Transaction

_TRIES = 10
_FIRST_LOOK = 64
"""Commits that are read before the first look at the state of an older version; doubled each time,
since that reads the log from its last checkpoint on.
"""


class Rewind:
    """Rewinds a table to what `keep` keeps.

    Args:
        table: the table of the job's sink.
        keep: see `CanRewind`.
    """

    def __init__(self, table: DeltaTable, keep: Mapping[str, int]) -> None:
        self._table = table
        self._owner = table.owner
        self._point = RewindPoint(keep)

    def check(self, snapshot: Snapshot) -> Sequence[str]:
        """See `CanRewind.check_rewind`; return Delta's action of each file to remove."""
        self._table.check_unchanged(snapshot)
        ahead = self._ahead(snapshot)
        if not ahead:
            return []
        try:
            added = LogSearch(self._owner, self._table.log, self._point).added(snapshot, ahead)
        except UnprovenError as error:
            raise self._refused(str(error), error.undo) from error
        undo = "undo that with ALTER TABLE"
        if added and snapshot.is_append_only:
            raise self._refused("the table is append-only (delta.appendOnly)", undo)
        if problems := refusals(snapshot.layout):
            raise self._refused("; ".join(problems), undo)
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
            remedy="check whether the table's folder is writable, then start the job again.",
        )

    def settle(self, attempt: Attempt) -> None:
        """See `RewindsInSteps.settle_rewind`: step 3, if step 2 was done."""
        snapshot = self._begin(attempt).snapshot
        try:
            is_done = not self._is_above(snapshot) and not self.check(snapshot)
        except RestoreRefusedError:  # files that it would remove are there, or may be
            return
        if is_done:
            self._remove_marks(snapshot)

    def _begin(self, attempt: Attempt) -> Transaction:
        """Begin a transaction that fails once a newer driver has raised the fence.

        Raises:
            FencedError: it has.
        """
        transaction = self._table.transactions.begin()
        self._table.check_unchanged(transaction.snapshot)
        transaction.defer_checkpoint()
        transaction.watch(self._owner.fence_id)
        fence = Fence(self._table).read(transaction.snapshot)
        if attempt.is_closed_by(fence):
            raise driver_is_fenced(self._owner.job, self._owner.sink, fence, attempt)
        return transaction

    def _ahead(self, snapshot: Snapshot) -> dict[str, int]:
        return self._point.ahead(self._table.committed(snapshot))

    def _lowered(self, snapshot: Snapshot) -> dict[str, int]:
        """Return the version to give to the application id of each lineage that is ahead."""
        return {
            self._owner.app_id(lineage): self._point.last_of(lineage)
            for lineage in self._ahead(snapshot)
        }

    def _is_above(self, snapshot: Snapshot) -> bool:
        """Return whether the log itself shows a lineage ahead, not only a mark next to it."""
        return any(
            not self._point.keeps(lineage, version)
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
        log, owner = self._table.log, self._owner
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
            version = transaction.remove(added, lowered, attempt.generation, note)
            log.shows(version, transaction.nonce)

    def _forget_records(self, snapshot: Snapshot) -> None:
        """Remove what is left of committed pieces: no later fold names their lineages."""
        for lineage, checkpoint in self._ahead(snapshot).items():
            Orphans(self._table).forget_committed(lineage, checkpoint)

    def _remove_marks(self, snapshot: Snapshot) -> None:
        """Step 3. Only what that snapshot proves to be removed: a newer driver may go on."""
        HighWaterMarks(self._owner, self._table.log.storage).remove_after(self._point, snapshot)
        for lineage in self._point.last:
            self._table.save_high_water_mark(lineage, snapshot)

    def _cannot(self) -> str:
        return (
            f"Sink {self._owner.sink!r} of job {self._owner.job!r} cannot rewind "
            f"{self._table.target}"
        )

    def _refused(self, why: str, undo: str = "") -> RestoreRefusedError:
        return RestoreRefusedError(
            f"{self._cannot()}: {why}. Nothing was removed.",
            remedy=f"{undo}{undo and '; or '}restore a checkpoint or savepoint from after that, or "
            "start without restore.path to go on.",
        )


class UnprovenError(Exception):
    """The log does not prove that the files are as they were added; the text says why.

    Attributes:
        undo: how that can be undone, for a remedy; empty if it cannot.
    """

    def __init__(self, why: str, undo: str = "") -> None:
        super().__init__(why)
        self.undo = undo


@dataclass
class _Change:
    """The last commit that names a data file.

    Attributes:
        version: of the table.
        operation: what Delta calls the commit.
        line: the file's action, as JSON text.
        action: its content.
        by_rewind: a rewind of this job and sink made the commit.
    """

    version: int
    operation: str
    line: str
    action: Mapping[str, Any]
    by_rewind: bool


@dataclass
class LogSearch:
    """A search of the log for the files to remove.

    Attributes:
        owner: job and sink.
        log: the table's log.
        point: the point to rewind to.

    RESTORE TABLE undoes all commits after a version. It is a way on only if none of them but the
    last one that names files is in the way: otherwise it would take away what was written since.
    """

    owner: Owner
    log: Log
    point: RewindPoint
    _last: dict[str, _Change] = field(default_factory=dict)
    _newest_change: int = -1

    def added(self, snapshot: Snapshot, ahead: Mapping[str, int]) -> Sequence[str]:
        """Return Delta's action of each file that the checkpoints have added.

        Args:
            snapshot: of the newest version.
            ahead: the lineages beyond the point, with their highest checkpoint.

        Raises:
            UnprovenError: a file was removed or changed, or the log does not go back far enough.
        """
        self._read_back(snapshot, {self.owner.app_id(lineage) for lineage in ahead})
        return [change.line for change in self._last.values() if self._is_whole(change)]

    def _is_whole(self, change: _Change) -> bool:
        """Return whether a file is in the table as it was added; False if a rewind has removed it.

        Raises:
            UnprovenError: anything else.
        """
        if "remove" in change.action:
            if change.by_rewind:
                return False
            path, done = change.action["remove"]["path"], "has removed"
        elif change.action["add"].get("deletionVector"):
            path, done = change.action["add"]["path"], "has deleted rows of"
        else:
            return True
        before = change.version - 1
        raise UnprovenError(
            f"version {change.version} of the table ({change.operation}) {done} {path}",
            f"undo that: RESTORE TABLE ... TO VERSION AS OF {before}"
            if change.version == self._newest_change
            else "",
        )

    def _read_back(self, snapshot: Snapshot, missing: set[str]) -> None:
        """Read commits until the beginning of each application id's checkpoints is found."""
        look, distance = snapshot.version - _FIRST_LOOK, _FIRST_LOOK
        version = snapshot.version
        while missing and version >= 0:
            text = self.log.commit_text(version)
            if text is None:
                if not self._is_before(version + 1, missing, snapshot):
                    raise UnprovenError(
                        f"the log was cleaned of the commits before version {version + 1}, which "
                        "may have added files of these checkpoints"
                    )
                return
            missing -= self._read(version, text)
            if missing and version == look:
                if self._is_before(version, missing, snapshot):
                    return
                distance *= 2
                look -= distance
            version -= 1

    def _is_before(self, version: int, missing: set[str], newest: Snapshot) -> bool:
        """Return whether a version is from before all checkpoints of these application ids.

        A table that forgets application ids does not tell.
        """
        if newest.retention_ms is not None:
            return False
        transactions = self.log.transactions_at(version)
        return transactions is not None and all(
            self._is_kept(app_id, transactions.get(app_id, -1)) for app_id in missing
        )

    def _is_kept(self, app_id: str, version: int) -> bool:
        lineage = self.owner.lineage_of(app_id)
        return lineage is not None and self.point.keeps(lineage, version)

    def _read(self, version: int, text: str) -> set[str]:
        """Note what a commit says of our files; return ids that it sets to a kept checkpoint."""
        if self._newest_change < 0 and any(mark in text for mark in ('{"add":', '{"remove":')):
            self._newest_change = version
        actions = list(self._actions(text))
        infos = [action["commitInfo"] for _, action in actions if "commitInfo" in action]
        info = infos[0] if infos else {}
        begun = set()
        for line, action in actions:
            if txn := action.get("txn"):
                begun |= {txn["appId"]} if self._is_kept(txn["appId"], txn["version"]) else set()
            for change in (action[kind] for kind in ("add", "remove") if kind in action):
                path = change["path"]
                piece = piece_of(path, self.owner)
                if piece is not None and not self.point.keeps(piece.lineage, piece.checkpoint):
                    operation, by_rewind = str(info.get("operation")), self._is_rewind(info)
                    self._note(path, _Change(version, operation, line, action, by_rewind))
        return begun

    def _note(self, path: str, change: _Change) -> None:
        """A commit that removes a file and adds it again, with rows deleted, adds it last."""
        known = self._last.setdefault(path, change)
        if known.version == change.version and "add" in change.action:
            self._last[path] = change

    def _actions(self, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what may concern us: most lines of a long commit do not."""
        ours = ('"commitInfo"', self.owner.app_id(""), self.owner.all_data_files)
        for line in text.splitlines():
            if any(mark in line for mark in ours):
                yield line, json.loads(line)

    def _is_rewind(self, info: Mapping[str, Any]) -> bool:
        try:
            note = json.loads(info.get("userMetadata") or "{}")["twophase"]
            whose = (note["job"], note["sink"])
        except (ValueError, KeyError, TypeError):
            return False
        return "taken_back" in note and whose == (self.owner.job, self.owner.sink)
