"""Finds, in a table's log, the data files that checkpoints to take back have added (H28).

The log is read backwards from the newest version, to one at which none of the checkpoints was
committed. So all commits that may name one of the files are read, and the first of them that does
is the last that was made: it tells whether the file is still in the table as it was added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twophase.sinks.common.kept import Kept
from twophase.sinks.delta.log import Log, Snapshot
from twophase.sinks.delta.names import Owner, piece_of

_FIRST_LOOK = 64
"""Commits that are read before the first look at the state of an older version; doubled each time,
since that reads the log from its last checkpoint on.
"""


class UnprovenError(Exception):
    """The log does not prove that the files are as they were added; the text says why."""


@dataclass
class _Change:
    """The last commit that names a data file.

    Attributes:
        version: of the table.
        operation: what Delta calls the commit.
        line: the file's action, as JSON text.
        action: its content.
        by_rewind: a rewind of this job and sink has made the commit.
    """

    version: int
    operation: str
    line: str
    action: Mapping[str, Any]
    by_rewind: bool


@dataclass
class LogSearch:
    """One search.

    Attributes:
        owner: job and sink.
        log: the table's log.
        keep: what is not taken back.
    """

    owner: Owner
    log: Log
    keep: Kept
    _last: dict[str, _Change] = field(default_factory=dict)

    def added(self, snapshot: Snapshot, ahead: Mapping[str, int]) -> Sequence[str]:
        """Return Delta's action of each file that the checkpoints have added.

        Args:
            snapshot: of the newest version.
            ahead: the lineages, with their highest checkpoint, of which some are taken back.

        Raises:
            UnprovenError: a file was removed or changed, or the log does not go back far enough.
        """
        self._read_back(snapshot, {self.owner.app_id(lineage) for lineage in ahead})
        return [change.line for change in self._last.values() if _is_whole(change)]

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
        return lineage is not None and self.keep.has(lineage, version)

    def _read(self, version: int, text: str) -> set[str]:
        """Note what a commit says of our files; return ids that it sets to a kept checkpoint."""
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
                if piece is not None and not self.keep.has(piece.lineage, piece.checkpoint):
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


def _is_whole(change: _Change) -> bool:
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
    raise UnprovenError(f"version {change.version} of the table ({change.operation}) {done} {path}")
