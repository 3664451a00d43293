"""High-water marks next to a table that forgets application ids.

The version of a lineage's application id proves its highest committed checkpoint. A table may be
set to drop it after a while (`delta.setTransactionRetentionDuration`); then an older copy of the
table, or an empty table, looks the same as one that has forgotten. So each commit to such a table
also creates an empty file in the folder of the records:

    <lineage>-<checkpoint>.<version of the table>.<id of the table>.proof

It is written after the commit, never before; by the next fence, if the driver died in between. It
is valid only in the table with that id, at that version or later: an older copy of the table's log
proves nothing, whatever is next to it.
"""

from __future__ import annotations

import re

from twophase.sinks.common.rewind_point import RewindPoint
from twophase.sinks.delta.log import Snapshot
from twophase.sinks.delta.names import Owner
from twophase.sinks.delta.storage import Storage

_MARK = re.compile(
    r"(?P<lineage>[0-9a-f-]{36})-(?P<checkpoint>\d{1,18})\."
    r"(?P<version>\d{1,18})\.(?P<table>[^.]+)\.proof"
)


class HighWaterMarks:
    """The marks of one job and sink.

    Args:
        owner: job and sink.
        storage: of the table.
    """

    def __init__(self, owner: Owner, storage: Storage) -> None:
        self._owner = owner
        self._storage = storage

    def highest(self, snapshot: Snapshot) -> dict[str, int]:
        """Return each lineage's highest checkpoint that a mark proves for the current table."""
        highest: dict[str, int] = {}
        for found in self._found():
            if found["table"] == snapshot.table and int(found["version"]) <= snapshot.version:
                highest[found["lineage"]] = max(
                    highest.get(found["lineage"], -1), int(found["checkpoint"])
                )
        return highest

    def raise_to(self, lineage: str, checkpoint: int, snapshot: Snapshot) -> None:
        """Write a mark for what `snapshot` proves, then remove the marks that it replaces."""
        if self.highest(snapshot).get(lineage, -1) < checkpoint:
            name = f"{lineage}-{checkpoint}.{snapshot.version}.{snapshot.table}.proof"
            self._storage.create(self._path(name), b"")
        old = [
            found.string
            for found in self._found()
            if found["lineage"] == lineage
            and found["table"] == snapshot.table
            and int(found["checkpoint"]) < checkpoint
        ]
        self._storage.delete([self._path(name) for name in old])

    def remove_after(self, point: RewindPoint, snapshot: Snapshot) -> None:
        """Remove the marks of checkpoints that a rewind has removed from the current table."""
        gone = [
            found.string
            for found in self._found()
            if found["table"] == snapshot.table
            and int(found["version"]) <= snapshot.version
            and not point.keeps(found["lineage"], int(found["checkpoint"]))
        ]
        self._storage.delete([self._path(name) for name in gone])

    def _found(self) -> list[re.Match[str]]:
        names = self._storage.names(self._owner.folder)
        return [found for name in names if (found := _MARK.fullmatch(name)) is not None]

    def _path(self, name: str) -> str:
        return f"{self._owner.folder}/{name}"
