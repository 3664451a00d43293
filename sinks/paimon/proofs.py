"""Proofs of what is committed: the snapshot that has the rows says so itself (I4).

    snapshot's properties       made in one step with the rows
    commits/<lineage>~<checkpoint>~<snapshot>   in the staging area: this snapshot was seen
    done/<piece>, marks/...     as of the sinks that write files

Snapshots expire, and no snapshot keeps the properties of the one before. So once a commit was read
back, the staging area notes it, durably; the newest note of each lineage stays, and tells whether
the table was rolled back since.

Until it is noted, a piece is searched for in the snapshots that are left. If one is missing after
that which was the newest when it was begun, its files in the newest snapshot, or in the oldest that
is left, prove it; without them nobody can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twophase.errors import StopJobError
from twophase.internals.record import DamagedRecordError
from twophase.sinks.common.staging.disk import sync, write_durably
from twophase.sinks.common.staging.names import Owner, PieceName, file_name
from twophase.sinks.common.staging.staging_area import DONE, STAGED, StagingArea, entries
from twophase.sinks.paimon.private_api import PaimonTable
from twophase.sinks.paimon.records import (
    PIECES,
    CommitRecord,
    Manifest,
    Note,
    SnapshotPieces,
    decode_commit,
    decode_pieces,
    encode_commit,
    short,
)

COMMITS = "commits"


@dataclass(frozen=True)
class Found:
    """A snapshot of the sink.

    Attributes:
        snapshot: its id.
        uuid: see `CommitRecord`.
        proof: what it proves.
    """

    snapshot: int
    uuid: str
    proof: SnapshotPieces


@dataclass
class Proofs:
    """The proofs of one job and sink, as they are at one time.

    Attributes:
        owner: job and sink.
        area: the staging area.
        table: the table.
        newest: the id of its newest snapshot; 0 if there is none.
    """

    owner: Owner
    area: StagingArea
    table: PaimonTable
    newest: int
    _read: dict[int, Found | None] = field(default_factory=dict)

    def noted(self, name: PieceName) -> str:
        """Return how the staging area proves a piece; empty if it does not."""
        if not self.area.exists():
            return ""
        stage = self.area.stage()
        if (stage / DONE / str(name)).exists():
            return "done marker"
        for note in self.notes():
            is_theirs = (note.lineage, note.checkpoint) == (name.lineage, name.checkpoint)
            if is_theirs and short(name) in self._pieces(note):
                return f"snapshot {note.snapshot}"
        return ""

    def mark(self, lineage: str) -> int:
        """Return the high-water mark of a lineage; -1 if there is none."""
        return self.area.marks().get(lineage, -1) if self.area.exists() else -1

    def published(self, name: PieceName, manifest: Manifest, absent: Any = None) -> Found | None:
        """Return the snapshot that proves a piece whose files a commit has moved; None if none has.

        All that are left are looked at, the newest first: a rollback of others frees the ids of
        snapshots, also of those that were there when the piece was begun.

        Args:
            name: its name.
            manifest: its manifest.
            absent: the newest snapshot of an earlier look that has shown that none had it; None if
                there was no such look.

        Raises:
            StopJobError: nobody can tell any more.
        """
        known = absent.id if absent is not None and self.table.is_here(absent) else 0
        seen = set[int]()
        for number in reversed(self.table.ids()):
            if number <= known:
                break
            with suppress(FileNotFoundError):  # it expires just now
                found = self._find(number)
                if found is not None and found.proof.names(name):
                    return found
                seen.add(number)
        since = range(max(manifest.base, known) + 1, self.newest + 1)
        gap = next((number for number in since if number not in seen), None)
        return None if gap is None else self._by_files(name, manifest, gap)

    def anywhere(self, name: PieceName) -> Found | None:
        """Return a snapshot that proves a piece; None if none of those that are left does."""
        for number in reversed(self.table.ids()):
            with suppress(FileNotFoundError):
                found = self._find(number)
                if found is not None and found.proof.names(name):
                    return found
        return None

    def _by_files(self, name: PieceName, manifest: Manifest, gap: int) -> Found:
        """Return a snapshot that has the files of a piece: the newest, or the oldest that is left.

        Raises:
            StopJobError: neither has.
        """
        names = {
            file_name(manifest.transaction, manifest.subtask, file.number, ".parquet")
            for file in manifest.files
        }
        for number in (self.newest, *self.table.ids()[:1]):
            snapshot = self.table.snapshot(number)
            if snapshot is not None and names <= self.table.names_in(snapshot):
                of = manifest.transaction
                proof = SnapshotPieces(of.job, of.sink, of.lineage, of.checkpoint, (short(name),))
                return Found(snapshot.id, str(snapshot.uuid), proof)
        stage = self.area.stage()
        raise StopJobError(
            f"Whether {manifest.transaction} is committed cannot be told any more: its commit had "
            f"begun, snapshot {gap} of {self.table.location} is gone, and no other that was looked "
            f"at has its files ({min(names)}, ...).",
            remedy="look whether the table has its rows. If it has, move "
            f"{stage / STAGED / str(name)} to {stage / DONE}; if not, move its files back into "
            "that folder, each under the number at the end of its name; then start the job again. "
            "To avoid it, keep snapshots for longer than a driver may be down "
            "(snapshot.time-retained).",
        )

    def _find(self, number: int) -> Found | None:
        """Return what a snapshot proves of this job and sink; None for nothing.

        Raises:
            FileNotFoundError: it is gone.
        """
        if number not in self._read:
            snapshot = self.table.snapshot(number)
            if snapshot is None:
                raise FileNotFoundError(f"snapshot {number}")
            self._read[number] = self._of(snapshot)
        return self._read[number]

    def _of(self, snapshot: Any) -> Found | None:
        text = (snapshot.properties or {}).get(PIECES)
        if text is None:
            return None
        where = f"{PIECES} of snapshot {snapshot.id}"
        file = self.table.location / "snapshot" / f"snapshot-{snapshot.id}"
        try:
            proof = decode_pieces(text, where)
        except DamagedRecordError as error:
            raise StopJobError(
                f"The property {where} of {self.table.location} is damaged ({error}): somebody has "
                "changed it.",
                remedy=f"restore {file} from a backup.",
            ) from error
        if (proof.job, proof.sink) != (self.owner.job, self.owner.sink):
            return None
        return Found(snapshot.id, str(snapshot.uuid), proof)

    def notes(self) -> list[Note]:
        """Return the notes of commits, oldest first."""
        if not self.area.exists():
            return []
        folder = self.area.stage() / COMMITS
        names = entries(folder) if folder.exists() else []
        return sorted(note for name in names if (note := Note.parse(name)) is not None)

    def newest_notes(self) -> Mapping[str, Note]:
        """Return the newest note of each lineage."""
        return {note.lineage: note for note in self.notes()}

    def rolled_back(self) -> str:
        """Return why the table lacks what the sink has committed; empty if it has it."""
        for lineage, note in self.newest_notes().items():
            what = f"snapshot {note.snapshot}, the newest of lineage {lineage},"
            snapshot, record = self.table.snapshot(note.snapshot), self._record(note)
            if snapshot is not None:
                if record is not None and str(snapshot.uuid) != record.uuid:
                    return (
                        f"{what} is another one now: somebody has rolled the table back, or a "
                        "writer that does not look has replaced it"
                    )
            elif note.snapshot > self.newest or note.snapshot > self.table.ids()[0]:
                return f"{what} is gone, and has not expired: somebody has rolled the table back"
        return ""

    def committed(self) -> dict[str, int]:
        """Return, for each lineage, the highest committed checkpoint."""
        highest = self.area.committed()
        for note in self.notes():
            highest[note.lineage] = max(highest.get(note.lineage, -1), note.checkpoint)
        return highest

    def has(self, lineage: str, checkpoint: int) -> bool:
        """Return whether there is proof of a checkpoint."""
        if not self.area.exists():
            return False
        is_noted = any(
            (note.lineage, note.checkpoint) == (lineage, checkpoint) for note in self.notes()
        )
        return is_noted or self.area.has(lineage, checkpoint)

    def pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """Return the proven pieces of a checkpoint, as `attempt/subtask`."""
        found = {
            short(piece)
            for piece in self.area.pieces(DONE)
            if (piece.lineage, piece.checkpoint) == (lineage, checkpoint)
        }
        for note in self.notes():
            if (note.lineage, note.checkpoint) == (lineage, checkpoint):
                found |= {*self._pieces(note)}
        return sorted(found)

    def _pieces(self, note: Note) -> Sequence[str]:
        record = self._record(note)
        return () if record is None else record.pieces

    def _record(self, note: Note) -> CommitRecord | None:
        """Return a note; None if another driver has folded it, or raised the fence, meanwhile."""
        path = self.area.stage() / COMMITS / str(note)
        try:
            return decode_commit(path.read_bytes(), str(path))
        except FileNotFoundError:
            return None
        except DamagedRecordError as error:
            raise StopJobError(
                f"{path} is damaged ({error}).", remedy="restore this file from a backup."
            ) from error


def note_commit(stage: Path, found: Found) -> None:
    """Note durably that a snapshot was seen, unless it is noted.

    Args:
        stage: the folder of the fence that was up when it was looked for.
        found: the snapshot.
    """
    folder = stage / COMMITS
    folder.mkdir(mode=0o700, exist_ok=True)
    proof = found.proof
    path = folder / str(Note(found.snapshot, proof.lineage, proof.checkpoint))
    if path.exists():
        sync(folder, stage)  # its writer may have died before its own sync
        return
    path.with_name(f".{path.name}").unlink(missing_ok=True)  # of a writer that died
    write_durably(path, [encode_commit(CommitRecord(found.snapshot, found.uuid, proof.pieces))])
    sync(stage)


def fold_notes(proofs: Proofs, lineage: str) -> None:
    """Remove the notes of commits that the mark of a lineage stands for, but for the newest."""
    mark, newest = proofs.mark(lineage), proofs.newest_notes().get(lineage)
    folder = proofs.area.stage() / COMMITS
    for note in proofs.notes():
        if note.lineage == lineage and note.checkpoint <= mark and note != newest:
            (folder / str(note)).unlink(missing_ok=True)


def others(area: StagingArea) -> Iterator[tuple[Owner, Mapping[str, int]]]:
    """Yield the other jobs and sinks that have committed to the table, with what they have."""
    for one in area.others() if area.root.exists() else []:
        if committed := one.committed_beside():
            yield one.owner, committed
