"""The manifest of a piece: durable bytes with version, kind, length and SHA-256 (invariant I9).

    twophase-iceberg/1 manifest 812 9f86d081884c7d65...\n
    {"fields":{"1":"long", ...},"files":[{"number":0,"partition":["AAAAAAAAAAE="], ...}], ...}

It holds what Iceberg's manifests say of each data file, and no paths: the committer works out where
a file belongs. Values are as Iceberg serialises single values (its specification, appendix D).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twophase.contract.committable import Committable
from twophase.ids import Subtask, TransactionId
from twophase.internals.json_values import decode, encode
from twophase.internals.record import digest
from twophase.sinks.common.staging.manifest import FILE

_MAGIC = "twophase-iceberg/1"


@dataclass(frozen=True)
class FileStatistics:
    """What Iceberg keeps of the columns of a file, each by the column's id, as text.

    Attributes:
        column_sizes: bytes.
        value_counts: values, nulls included.
        null_value_counts: nulls.
        nan_value_counts: values that are no number.
        lower_bounds: serialised.
        upper_bounds: serialised.
        split_offsets: where row groups begin.
    """

    column_sizes: Mapping[str, int]
    value_counts: Mapping[str, int]
    null_value_counts: Mapping[str, int]
    nan_value_counts: Mapping[str, int]
    lower_bounds: Mapping[str, bytes]
    upper_bounds: Mapping[str, bytes]
    split_offsets: tuple[int, ...]


@dataclass(frozen=True)
class StagedFile:
    """One data file of a piece.

    Attributes:
        number: its number, which is its name in the piece's folder.
        partition: the value of each partition field, serialised; None is null.
        rows: the number of rows.
        size: bytes.
        sha256: hex digest of its content.
        statistics: of its columns.
    """

    number: int
    partition: tuple[bytes | None, ...]
    rows: int
    size: int
    sha256: str
    statistics: FileStatistics


@dataclass(frozen=True)
class Manifest:
    """The data files that one task attempt pre-committed.

    Attributes:
        transaction: the transaction of the piece.
        subtask: the task attempt that wrote it.
        spec: the id of the partition spec that they were written for.
        fields: the type of each column, by its id, as text.
        files: all data files, in the order they were written.
    """

    transaction: TransactionId
    subtask: Subtask
    spec: int
    fields: Mapping[str, str]
    files: tuple[StagedFile, ...]

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
        return encode(_MAGIC, FILE, self)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Return the manifest in the folder of a piece.

        Raises:
            FileNotFoundError: it has none.
            NewerFormatError, DamagedRecordError: as `decode`.
        """
        path = folder / FILE
        return cls.decode(path.read_bytes(), str(path))

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """Return the manifest in some bytes; the reverse of `encode`.

        Args:
            data: the bytes.
            where: the file's name, for the error.

        Raises:
            NewerFormatError: another version of twophase has written them.
            DamagedRecordError: the bytes are not those that were written.
        """
        return decode(_MAGIC, FILE, data, where, cls)
