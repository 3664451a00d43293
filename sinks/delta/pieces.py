"""The pieces of one job and sink, as the records next to the table show them.

Every driver finds pre-committed pieces here, never in memory. A piece is in doubt from its intent
on: a driver that dies while Spark writes leaves data files that no list names, and only the intent
shows that they exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from twophase.contract.committable import Committable
from twophase.ids import TransactionId
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError, digest
from twophase.sinks.delta.log import Log
from twophase.sinks.delta.names import Owner, PieceName, data_prefix
from twophase.sinks.delta.records import (
    ONLY_SUBTASK,
    Intent,
    Manifest,
    data_file,
    decode_intent,
    decode_manifest,
    encode_intent,
    encode_manifest,
)
from twophase.sinks.delta.storage import Storage

_INTENT = ".intent"
_MANIFEST = ".manifest"
_ABORTED = ".aborted"
_KINDS = (_MANIFEST, _INTENT, _ABORTED)
"""In the order in which they are removed: until the last one is gone the piece stays in doubt."""


class InLog(Enum):
    """The log's answer for a piece that it can neither prove absent nor present."""

    ABSENT = "no commit since the piece was begun names a file of it"
    UNKNOWN = "the log has been cleaned of commits that may name a file of it"


@dataclass(frozen=True)
class Piece:
    """One piece, as its records describe it.

    Attributes:
        name: its identity within job and sink.
        intent: None if it is torn: then no data file was begun.
        manifest: None if it is missing or torn, or an abort has begun: then the piece cannot be
            committed.
        manifest_sha256: of its bytes; empty if there is none.
    """

    name: PieceName
    intent: Intent | None
    manifest: Manifest | None = None
    manifest_sha256: str = ""

    def committable(self, owner: Owner, target: str) -> Committable:
        """Return its committable; without rows if it was not pre-committed."""
        if self.manifest is not None:
            return self.manifest.committable(target)
        name = self.name
        unknown = TransactionId(
            owner.job, name.lineage, name.checkpoint, name.attempt, owner.sink, ""
        )
        return Committable(
            self.intent.transaction if self.intent else unknown, ONLY_SUBTASK, target, 0
        )


class Pieces:
    """The records of one owner.

    Args:
        owner: job and sink.
        log: the table's log.
    """

    def __init__(self, owner: Owner, log: Log) -> None:
        self.owner = owner
        self._log = log

    @property
    def _storage(self) -> Storage:
        return self._log.storage

    def create_folder(self) -> None:
        """Create the folder of the records if it is missing."""
        self._storage.create_folder(self.owner.folder)

    def begin(self, intent: Intent) -> None:
        """Write the intent."""
        self._storage.create(
            self._record(PieceName.of(intent.transaction), _INTENT), encode_intent(intent)
        )

    def finish(self, manifest: Manifest) -> None:
        """Sync the data files, then write the manifest."""
        self._storage.sync(_paths(manifest))
        failpoint("F01")
        name = PieceName.of(manifest.intent.transaction)
        self._storage.create(self._record(name, _MANIFEST), encode_manifest(manifest))
        failpoint("F02")

    def all(self) -> list[Piece]:
        """Return every piece that has a record, oldest checkpoint first."""
        stems = {
            name.removesuffix(kind)
            for name in self._storage.names(self.owner.folder)
            for kind in _KINDS
        }
        names = [name for stem in stems if (name := PieceName.parse(stem)) is not None]
        return [self.get(name) for name in sorted(names, key=lambda name: (name.checkpoint, name))]

    def get(self, name: PieceName) -> Piece:
        """Return one piece, with whatever records it has.

        An abort is looked for last: one that begins after a commit's look writes its fence after
        that commit has begun.

        Raises:
            NewerFormatError: a newer version of twophase has written one of them.
        """
        record = self._record(name, _MANIFEST)
        intent, data = self._read_intent(name), self._storage.read(record) or b""
        try:
            manifest = decode_manifest(data, self._storage.absolute(record))
        except DamagedRecordError:
            return Piece(name, intent)
        intent = intent or manifest.intent
        if self.is_being_aborted(name):
            return Piece(name, intent)
        return Piece(name, intent, manifest, digest(data))

    def has_manifest(self, name: PieceName) -> bool:
        """Return whether a piece has a manifest, whole or torn: it may have been whole before."""
        return self._storage.exists(self._record(name, _MANIFEST))

    def manifest_path(self, name: PieceName) -> str:
        """Return where the manifest of a piece is, for a message."""
        return self._storage.absolute(self._record(name, _MANIFEST))

    def is_being_aborted(self, name: PieceName) -> bool:
        """Return whether an abort of a piece has begun, and not ended."""
        return self._storage.exists(self._record(name, _ABORTED))

    def begin_abort(self, name: PieceName) -> bool:
        """Record that an abort begins: no commit that begins from here on finds the manifest.

        Returns:
            Whether a commit that began before may have found it.
        """
        begun_before = self.is_being_aborted(name)
        if not begun_before:
            self._storage.create_empty(self._record(name, _ABORTED))
        return begun_before or self.has_manifest(name)

    def refuse_abort(self, name: PieceName) -> None:
        """Undo `begin_abort`: the piece is committed."""
        self._storage.delete([self._record(name, _ABORTED)])

    def missing_files(self, manifest: Manifest) -> list[str]:
        """Return data files that are missing or have another length."""
        files = [data_file(action) for action in manifest.actions]
        return [file.path for file in files if self._storage.size(file.local_path) != file.size]

    def forget(self, name: PieceName) -> None:
        """Remove the records of a piece, that of an abort last."""
        self._storage.delete([self._record(name, kind) for kind in _KINDS])

    def delete_data(self, piece: Piece, depth: int) -> None:
        """Delete all data files that bear the name of a piece, listed in its manifest or not."""
        if piece.intent is not None:
            self._storage.delete(
                self._storage.starting_with(piece.name.data_files(self.owner), depth)
            )

    def delete_unlisted(self, manifest: Manifest, depth: int) -> None:
        """Delete a piece's files that its manifest does not list. Delta leaves them to VACUUM."""
        start = self.data_prefix(manifest.intent.transaction)
        self._storage.delete({*self._storage.starting_with(start, depth)} - {*_paths(manifest)})

    def named_by(self, piece: Piece) -> int | InLog:
        """Return the version of the log that names a data file of a piece, or why there is none.

        Every commit since the piece was begun is read: no earlier version can name a file of it,
        because every attempt uses new names.
        """
        if piece.intent is None:
            return InLog.ABSENT
        intent = piece.intent
        start = f"{piece.name.data_files(self.owner)}{intent.transaction.offsets_hash[:12]}-"
        for version in range(intent.base + 1, self._log.snapshot().version + 1):
            text = self._log.commit_text(version)
            if text is None:
                return InLog.UNKNOWN
            if start in text:
                return version
        return InLog.ABSENT

    def data_prefix(self, transaction: TransactionId) -> str:
        """Return the prefix of the names of a transaction's data files."""
        return data_prefix(self.owner, transaction)

    def _read_intent(self, name: PieceName) -> Intent | None:
        record = self._record(name, _INTENT)
        try:
            return decode_intent(self._storage.read(record) or b"", self._storage.absolute(record))
        except DamagedRecordError:
            return None

    def _record(self, name: PieceName, kind: str) -> str:
        return f"{self.owner.folder}/{name}{kind}"


def _paths(manifest: Manifest) -> Sequence[str]:
    return [data_file(action).local_path for action in manifest.actions]
