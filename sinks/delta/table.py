"""A Delta table, as one job's sink has opened it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from twophase.errors import TargetChangedError
from twophase.sinks.delta.high_water_marks import HighWaterMarks
from twophase.sinks.delta.log import Log, Snapshot
from twophase.sinks.delta.names import FOLDER, Owner
from twophase.sinks.delta.pieces import Pieces
from twophase.sinks.delta.transaction import Transactions


@dataclass(frozen=True)
class DeltaTable:
    """The table of one job and sink.

    Attributes:
        owner: job and sink.
        transactions: the table's, in its log.
        pieces: the records next to the table.
        id: the table's id.
        merge_schema: columns that the table lacks are added.
        speculation: Spark may run a task twice at the same time.
    """

    owner: Owner
    transactions: Transactions
    pieces: Pieces
    id: str
    merge_schema: bool
    speculation: bool

    @property
    def log(self) -> Log:
        """The table's log."""
        return self.transactions.log

    def active(self) -> AbstractContextManager[None]:
        """Make the job's session the active one of this thread: Delta reads its settings there."""
        return self.log.jvm.active()

    @property
    def target(self) -> str:
        """The target's identity (I10): a new table in the same folder is another target."""
        return f"delta:{self.id}:{self.log.storage.root}"

    def check_unchanged(self, snapshot: Snapshot) -> None:
        """Check that the table is still the one that was opened.

        Raises:
            TargetChangedError: it was dropped or recreated.
        """
        if snapshot.version >= 0 and snapshot.table == self.id:
            return
        other = f"now it has the id {snapshot.table}"
        found = other if snapshot.version >= 0 else "now there is no table"
        raise TargetChangedError(
            f"Sink {self.owner.sink!r} of job {self.owner.job!r}: the table in "
            f"{self.log.storage.root} had the id {self.id} when it was opened; {found}. "
            "Nothing was written.",
            remedy="restore the table; or, for the new one, start a new lineage with restore.path.",
        )

    def committed(self, snapshot: Snapshot) -> dict[str, int]:
        """Return, for each lineage, the highest checkpoint that the table proves."""
        highest: dict[str, int] = {}
        if snapshot.retention_ms is not None:
            highest |= HighWaterMarks(self.owner, self.log.storage).highest(snapshot)
        for app_id, version in snapshot.transactions.items():
            # below 0: a rewind has removed the whole lineage
            if (lineage := self.owner.lineage_of(app_id)) is not None and version >= 0:
                highest[lineage] = max(highest.get(lineage, -1), version)
        return highest

    def other_names(self, snapshot: Snapshot) -> dict[tuple[str, str], dict[str, int]]:
        """Return what the table proves of other owners: the highest checkpoint of each lineage."""
        owners = {found[0] for one in snapshot.transactions if (found := self.owner.other(one))}
        if snapshot.retention_ms is not None:
            owners |= self._owners_of_marks() - {self.owner}
        tables = {owner: replace(self, owner=owner) for owner in owners}
        return {
            (owner.job, owner.sink): table.committed(snapshot) for owner, table in tables.items()
        }

    def _owners_of_marks(self) -> set[Owner]:
        """Return the owners of the folders next to the table's data."""
        storage = self.log.storage
        return {
            Owner(job, sink)
            for job in storage.names(FOLDER)
            for sink in storage.names(f"{FOLDER}/{job}")
        }

    def has(self, lineage: str, checkpoint: int, snapshot: Snapshot) -> bool:
        """Return whether the table proves that a checkpoint is committed."""
        return self.committed(snapshot).get(lineage, -1) >= checkpoint

    def save_high_water_marks(self, snapshot: Snapshot) -> None:
        """Save what the table proves about every lineage, if the table is set to forget it."""
        if snapshot.retention_ms is not None:
            for lineage in self.committed(snapshot):
                self.save_high_water_mark(lineage, snapshot)

    def save_high_water_mark(self, lineage: str, snapshot: Snapshot) -> None:
        """Save what the table proves about a lineage, if the table is set to forget it."""
        highest = snapshot.transactions.get(self.owner.app_id(lineage), -1)
        if snapshot.retention_ms is not None and highest >= 0:
            HighWaterMarks(self.owner, self.log.storage).raise_to(lineage, highest, snapshot)

    def folder_depth(self) -> int:
        """Return the maximum number of folders between the table's folder and its data files.

        One for each partition column, or one with a random name instead; one more if Delta is set
        to keep data in a separate folder.
        """
        return max(1, len(self.log.snapshot().layout.partition_columns)) + 1
