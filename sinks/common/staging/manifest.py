"""The manifest of a piece: durable bytes with version, kind, length and SHA-256 (invariant I9).

    twophase-files/1 manifest 512 9f86d081884c7d65...\n
    {"files":[{"number":0,"partition":["2026-08-01"],"rows":5,"sha256":"...","size":970}],
        "subtask":{...}, ...}

It holds partition values and numbers, no paths: the committer works out where a file belongs. It is
not in the checkpoint's body, because there can be thousands of files. The committable carries
its SHA-256 instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from twophase.contract.committable import Committable
from twophase.ids import Subtask, TransactionId
from twophase.internals.json_values import decode, encode
from twophase.internals.record import digest
from twophase.sinks.common.partition_names import Values

FILE = "manifest"
FORMAT = "twophase-files/1"
"""The format of all durable records of the sinks that write files."""


@dataclass(frozen=True)
class StagedFile:
    """One file of a piece.

    Attributes:
        number: its number, which is its name in the piece's folder.
        partition: the value of each partition column.
        rows: the number of rows.
        size: bytes.
        sha256: hex digest of its content.
    """

    number: int
    partition: Values
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True)
class PieceManifest:
    """The files that one task attempt pre-committed, whatever a sink says of each.

    Attributes:
        FORMAT: of its durable bytes.
        transaction: the transaction of the piece.
        subtask: the task attempt that wrote it.
        files: all of its files, in the order they were written, each with `rows` and `size`.
    """

    FORMAT: ClassVar[str]

    transaction: TransactionId
    subtask: Subtask
    files: tuple[Any, ...]

    def committable(self, target: str) -> Committable:
        """Return the piece's committable: the manifest's SHA-256, and details for operators."""
        handle: dict[str, str | int] = {
            "manifest_sha256": digest(self.encode()),
            "files": len(self.files),
            "bytes": sum(file.size for file in self.files),
        }
        return Committable(
            self.transaction, self.subtask, target, sum(file.rows for file in self.files), handle
        )

    def encode(self) -> bytes:
        """Return the manifest as durable bytes."""
        return encode(self.FORMAT, FILE, self)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the manifest in the folder of a piece.

        Raises:
            FileNotFoundError: it has none.
            NewerFormatError, DamagedRecordError: as `decode`.
        """
        path = folder / FILE
        return cls.decode(path.read_bytes(), str(path))

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Return the manifest in some bytes; the reverse of `encode`.

        Args:
            data: the bytes.
            where: the file's name, for the error.

        Raises:
            NewerFormatError: another version of twophase has written them.
            DamagedRecordError: the bytes are not those that were written.
        """
        return decode(cls.FORMAT, FILE, data, where, cls)


@dataclass(frozen=True)
class Manifest(PieceManifest):
    """The files of rows that one task attempt pre-committed.

    Attributes:
        files: see `PieceManifest`.
        watermark_us: the highest event time of its rows, in microseconds since 1970; None
            if it is not needed.
    """

    FORMAT: ClassVar[str] = FORMAT

    files: tuple[StagedFile, ...]
    watermark_us: int | None = None

    def committable(self, target: str) -> Committable:
        """See `PieceManifest.committable`."""
        piece = super().committable(target)
        if self.watermark_us is None:
            return piece
        return replace(piece, handle={**piece.handle, "watermark_us": self.watermark_us})
