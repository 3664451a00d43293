"""The manifest of a piece: durable bytes with version, kind, length and SHA-256 (invariant I9).
Version 2 is that of a table with a sort order.

    twophase-iceberg/1 manifest 812 9f86d081884c7d65...\n
    {"fields":{"1":"long", ...},"files":[{"number":0,"partition":["AAAAAAAAAAE="], ...}], ...}

It holds what Iceberg's manifests say of each data file, and no paths: the committer works out where
a file belongs. Values are as Iceberg serialises single values (its specification, appendix D).

And the entries of a snapshot's summary, which tell whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.table.snapshots import Snapshot

from twophase.contract.piece import PieceOwner
from twophase.ids import Attempt, TransactionId
from twophase.internals.json_values import decode
from twophase.internals.record import check_version
from twophase.sinks.common.staging.manifest import FILE, PieceManifest

_JOB, _SINK, _ATTEMPT = "twophase.job", "twophase.sink", "twophase.attempt"
_LINEAGE, _CHECKPOINT = "twophase.lineage", "twophase.checkpoint"
_REWIND, _FENCE = "twophase.rewind", "twophase.fence"


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
class Manifest(PieceManifest):
    """The data files that one task attempt pre-committed.

    Attributes:
        files: see `PieceManifest`.
        spec: the id of the partition spec that they were written for.
        fields: the type of each column, by its id, as text.
    """

    FORMAT: ClassVar[str] = "twophase-iceberg/1"

    files: tuple[StagedFile, ...]
    spec: int
    fields: Mapping[str, str]

    @property
    def order(self) -> str:
        """The sort order of the files, as Iceberg's metadata has it; empty if there is none."""
        return ""

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """See `PieceManifest.decode`: a manifest of either kind."""
        is_sorted = data.startswith(f"{SortedManifest.FORMAT} ".encode())
        form = SortedManifest if is_sorted else Manifest
        check_version(SortedManifest.FORMAT, data, where)
        return decode(form.FORMAT, FILE, data, where, form)


@dataclass(frozen=True)
class SortedManifest(Manifest):
    """The data files that one task attempt pre-committed for a table with a sort order.

    Attributes:
        sorted_by: the sort order of their rows, as Iceberg's metadata has it.
    """

    FORMAT: ClassVar[str] = "twophase-iceberg/2"

    sorted_by: str

    @property
    def order(self) -> str:
        """See `Manifest`."""
        return self.sorted_by


def summary_of_piece(piece: TransactionId) -> dict[str, str]:
    """Return what the summary of a snapshot says that appends pieces."""
    return {
        _JOB: piece.job,
        _SINK: piece.sink,
        _LINEAGE: piece.lineage,
        _CHECKPOINT: str(piece.checkpoint),
        _ATTEMPT: str(piece.attempt),
    }


def summary_of_rewind(owner: PieceOwner, attempt: Attempt) -> dict[str, str]:
    """Return what the summary of a snapshot says that takes checkpoints back."""
    return {_JOB: owner.job, _SINK: owner.sink, _REWIND: str(attempt)}


def summary_of_fence(owner: PieceOwner, attempt: Attempt) -> dict[str, str]:
    """Return what the summary of a snapshot says that is a fence, and has no files."""
    return {_JOB: owner.job, _SINK: owner.sink, _FENCE: str(attempt)}


def checkpoint_of(owner: PieceOwner, snapshot: Snapshot) -> tuple[str, int] | None:
    """Return lineage and checkpoint of a snapshot of job and sink that appends pieces."""
    found = _own(owner, snapshot)
    checkpoint = found.get(_CHECKPOINT, "")
    return (found.get(_LINEAGE, ""), int(checkpoint)) if checkpoint.isdecimal() else None


def is_rewind(owner: PieceOwner, snapshot: Snapshot) -> bool:
    """Return whether a snapshot of job and sink takes checkpoints back."""
    return _REWIND in _own(owner, snapshot)


def _own(owner: PieceOwner, snapshot: Snapshot) -> Mapping[str, str]:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    is_own = (summary.get(_JOB), summary.get(_SINK)) == (owner.job, owner.sink)
    return summary if is_own else {}
