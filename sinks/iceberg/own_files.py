"""Searches the snapshots of a branch for the files that checkpoints have added (H28).

Snapshots are read backwards from the newest one, to one of each lineage that is not taken back, or
to its first. So all snapshots that may have added one of the files are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from twophase.sinks.common.rewind_point import RewindPoint
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.iceberg import private_api
from twophase.sinks.iceberg.branch import head_of
from twophase.sinks.iceberg.delete_files import DeleteFile
from twophase.sinks.iceberg.proofs import LineageProof
from twophase.sinks.iceberg.records import checkpoint_of, is_rewind


class UnprovenError(Exception):
    """The snapshots do not prove that the files are as they were added; the text says why."""


@dataclass(frozen=True)
class Found:
    """What a rewind takes back.

    Attributes:
        ahead: the proof of each lineage that goes beyond the point.
        files: the data files, as the manifests of the branch's newest snapshot have them.
        kept: by lineage, the newest checkpoint that stays, of those that snapshots name.
    """

    ahead: Mapping[str, LineageProof]
    files: list[DataFile]
    kept: Mapping[str, int]


@dataclass
class OwnFiles:
    """A search for the files of job and sink.

    Attributes:
        owner: job and sink.
        table: as it was loaded.
        branch: the branch that they are in.
        point: the point to rewind to.
    """

    owner: Owner
    table: Table
    branch: str
    point: RewindPoint
    _added: dict[str, tuple[ManifestEntry, Snapshot]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _kept: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def find(self, ahead: Mapping[str, LineageProof]) -> Found:
        """Return what is to be taken back.

        Args:
            ahead: the lineages beyond the point.

        Raises:
            UnprovenError: a file was removed, or rows of it deleted, or a snapshot has expired
                that may have added one.
        """
        read = [*self._read_back(ahead)]
        for lineage, proof in ahead.items():
            if self._seen.get(lineage) != proof.highest:
                raise UnprovenError(
                    f"no snapshot of {self.branch} names checkpoint {proof.highest} of lineage "
                    f"{lineage}"
                )
        return Found(ahead, self._whole(read), self._kept)

    def _read_back(self, ahead: Mapping[str, LineageProof]) -> Iterator[Snapshot]:
        """Read snapshots until the beginning of each lineage's checkpoints is found."""
        metadata = self.table.metadata
        snapshot = head_of(metadata, self.branch)
        missing = {*ahead}
        while missing and snapshot is not None:
            missing -= {lineage for lineage in missing if self._is_before(snapshot, lineage)}
            self._note(snapshot, ahead)
            yield snapshot
            missing -= {
                lineage for lineage in missing if ahead[lineage].first == snapshot.snapshot_id
            }
            before = snapshot.parent_snapshot_id  # None too where it has expired: no beginning
            snapshot = None if before is None else metadata.snapshot_by_id(before)
        if missing:
            raise UnprovenError(
                f"snapshots have expired that may have added files of lineage {min(missing)}"
            )

    def _is_before(self, snapshot: Snapshot, lineage: str) -> bool:
        """Return whether a snapshot is of a checkpoint that stays."""
        of = checkpoint_of(self.owner, snapshot)
        return of is not None and of[0] == lineage and self.point.keeps(*of)

    def _note(self, snapshot: Snapshot, ahead: Mapping[str, LineageProof]) -> None:
        if is_rewind(self.owner, snapshot):
            removed = self._entries(snapshot, ManifestEntryStatus.DELETED)
            self._taken |= {entry.data_file.file_path for entry in removed}
        of = checkpoint_of(self.owner, snapshot)
        if of is None or of[0] not in ahead:
            return
        lineage, checkpoint = of
        if self.point.keeps(lineage, checkpoint):
            self._kept[lineage] = max(checkpoint, self._kept.get(lineage, -1))
            return
        for entry in self._entries(snapshot, ManifestEntryStatus.ADDED):
            path = entry.data_file.file_path
            if path not in self._taken:
                self._seen[lineage] = max(checkpoint, self._seen.get(lineage, -1))
                self._added[path] = entry, snapshot

    def _entries(self, snapshot: Snapshot, status: ManifestEntryStatus) -> Iterator[ManifestEntry]:
        """Yield what a snapshot itself has done to files."""
        for manifest in snapshot.manifests(self.table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False):
                    if entry.snapshot_id == snapshot.snapshot_id and entry.status == status:
                        yield entry

    def _whole(self, read: list[Snapshot]) -> list[DataFile]:
        """Return the files as the branch's newest snapshot has them.

        Raises:
            UnprovenError: it has not all of them, or rows of some may have been deleted.
        """
        live, deletes = dict[str, DataFile](), list[DeleteFile]()
        for manifest in read[0].manifests(self.table.io):
            if manifest.content == ManifestContent.DELETES:
                deletes += private_api.delete_files(manifest, self.table.io)
                continue
            for entry in manifest.fetch_manifest_entry(self.table.io):
                live[entry.data_file.file_path] = entry.data_file
        specs = self.table.metadata.specs()
        for path, (added, snapshot) in self._added.items():
            if path not in live:
                raise UnprovenError(self._gone(path, snapshot, read))
            for delete in deletes:
                if delete.may_touch(added, specs):
                    raise UnprovenError(
                        f"snapshot {delete.entry.snapshot_id} has deleted rows, perhaps of "
                        f"{self._named(path, snapshot)}"
                    )
        return [live[path] for path in self._added]

    def _gone(self, path: str, added: Snapshot, read: list[Snapshot]) -> str:
        """Return who has removed a file."""
        for snapshot in read:
            removed = self._entries(snapshot, ManifestEntryStatus.DELETED)
            if any(entry.data_file.file_path == path for entry in removed):
                summary = snapshot.summary
                how = f" ({summary.operation.value})" if summary else ""
                who = f"snapshot {snapshot.snapshot_id}{how}"
                break
        else:
            who = "a snapshot after it"
        return f"{who} has removed {self._named(path, added)}"

    def _named(self, path: str, added: Snapshot) -> str:
        of = checkpoint_of(self.owner, added)
        assert of is not None  # noqa: S101 it is the snapshot of a checkpoint
        return f"{path}, a file of checkpoint {of[1]} of lineage {of[0]}"
