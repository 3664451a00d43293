"""The durable records of the sink, with version, kind, length and SHA-256 (invariant I9).

manifest    of a piece: what Paimon's manifests say of each data file, and no paths: the
            committer works out where a file belongs. A file is a commit message, as Paimon's
            own serializer writes it (`CommitMessageSerializer`, version 14)
pieces      in the properties of a snapshot that the sink has made: the proof of these pieces
commit      in the staging area: which snapshot has shown to be made by the sink. Snapshots
            expire, this outlives them
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from twophase.contract.piece import UUID
from twophase.ids import TransactionId
from twophase.internals.json_values import decode, encode
from twophase.sinks.common.staging.manifest import FILE, PieceManifest
from twophase.sinks.common.staging.names import PieceName

FORMAT = "twophase-paimon/1"
MESSAGE_VERSION = 14
"""Of the commit messages in a manifest."""
PIECES = "twophase.pieces"
"""The property of a snapshot that proves pieces."""
_COMMIT = "commit"
_NOTE = re.compile(rf"({UUID})~(\d{{1,18}})~(\d{{1,18}})", re.ASCII)


@dataclass(frozen=True)
class StagedFile:
    """One data file of a piece.

    Attributes:
        number: its number, which is its name in the piece's folder.
        rows: the number of rows.
        size: bytes.
        sha256: hex digest of its content.
        message: the commit message that adds it.
    """

    number: int
    rows: int
    size: int
    sha256: str
    message: bytes


@dataclass(frozen=True)
class Manifest(PieceManifest):
    """The data files that one task attempt pre-committed.

    Attributes:
        files: see `PieceManifest`.
        base: the id of the newest snapshot when they were begun, 0 if there was none: no snapshot
            up to it has them.
        version: of the commit messages.
        fields: the type of each column that they were written for, by its id.
    """

    FORMAT: ClassVar[str] = FORMAT

    files: tuple[StagedFile, ...]
    base: int
    version: int
    fields: Mapping[str, str]


@dataclass(frozen=True)
class SnapshotPieces:
    """What a snapshot proves.

    Attributes:
        job: the job.
        sink: the sink.
        lineage: of the pieces.
        checkpoint: of the pieces.
        pieces: the pieces, as `attempt/subtask`.
    """

    job: str
    sink: str
    lineage: str
    checkpoint: int
    pieces: tuple[str, ...]

    def names(self, name: PieceName) -> bool:
        """Return whether a piece is among them."""
        is_theirs = (self.lineage, self.checkpoint) == (name.lineage, name.checkpoint)
        return is_theirs and short(name) in self.pieces


@dataclass(frozen=True)
class CommitRecord:
    """A snapshot that the sink has made.

    Attributes:
        snapshot: its id.
        uuid: tells it from another one of that id, after a rollback.
        pieces: those that it proves, as `attempt/subtask`.
    """

    snapshot: int
    uuid: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Note:
    """The name of a note of a commit.

    Attributes:
        snapshot: the id of the snapshot.
        lineage: of its pieces.
        checkpoint: of its pieces.
    """

    snapshot: int
    lineage: str
    checkpoint: int

    def __str__(self) -> str:
        return f"{self.lineage}~{self.checkpoint}~{self.snapshot}"

    @classmethod
    def parse(cls, text: str) -> Note | None:
        """Return the note of a name; None for any other name."""
        found = _NOTE.fullmatch(text)
        return None if found is None else cls(int(found[3]), found[1], int(found[2]))


def short(name: PieceName) -> str:
    """Return a piece within its checkpoint, as `attempt/subtask`."""
    return f"{name.attempt}/{name.subtask}"


def pieces_of(transaction: TransactionId, names: list[PieceName]) -> SnapshotPieces:
    """Return what a snapshot of these pieces proves."""
    return SnapshotPieces(
        transaction.job,
        transaction.sink,
        transaction.lineage,
        transaction.checkpoint,
        tuple(map(short, names)),
    )


def encode_pieces(pieces: SnapshotPieces) -> str:
    """Return the property of a snapshot."""
    return encode(FORMAT, "pieces", pieces).decode()


def decode_pieces(text: str, where: str) -> SnapshotPieces:
    """Return what the property of a snapshot says.

    Raises:
        NewerFormatError, DamagedRecordError: see `decode`.
    """
    return decode(FORMAT, "pieces", text.encode(), where, SnapshotPieces)


def encode_commit(record: CommitRecord) -> bytes:
    """Return a record as durable bytes."""
    return encode(FORMAT, _COMMIT, record)


def decode_commit(data: bytes, where: str) -> CommitRecord:
    """Return the record in some bytes.

    Raises:
        NewerFormatError, DamagedRecordError: see `decode`.
    """
    return decode(FORMAT, _COMMIT, data, where, CommitRecord)


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Return the manifest in some bytes; see `PieceManifest.decode`."""
    return decode(FORMAT, FILE, data, where, Manifest)
