"""The names by which pieces and their files are recognised.

    _twophase~<job>~<sink>/             below the table's folder; readers skip names
                                        that begin with '_'
        fence-<generation>.<counter>/   this name is the fence; there is always exactly one
            staged/<piece>/             pre-committed, or being written: <number>, and at
                                        the end `manifest`
            aborted/<piece>~<id>/       hidden by a driver that aborts it
            done/<piece>/manifest       committed
            rewound/<piece>/            being rewound: <number>, and at the end `done`
            marks/<lineage>~<n>         committed up to checkpoint n; its entries in
                                        `done` are removed
    dt=2026-08-01/twophase-<owner>-<piece>-<offsets>-<number>.parquet          a committed file

A piece is `<lineage>-<checkpoint>-<generation>.<counter>-<subtask>.<task attempt>`. No name is used
twice (invariant I5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from twophase.contract.piece import ATTEMPT, UUID, PieceOwner, TaskPieceName
from twophase.contract.sink import SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, check_name

_FILE = re.compile(r"(twophase-[0-9a-f]{12}-(.+)-)[0-9a-f]*-(\d{1,10})\.[a-z]+", re.ASCII)
_MARK = re.compile(rf"({UUID})~(\d{{1,18}})", re.ASCII)
_FENCE = re.compile(rf"fence-{ATTEMPT}", re.ASCII)


class Owner(PieceOwner):
    """The owner of pieces, with the names of its hidden folder."""

    @classmethod
    def of(cls, context: SinkContext) -> Self:
        """Return the job and sink of a context.

        Raises:
            ConfigError: one of their names is not allowed.
        """
        return cls(check_name("job", context.job), check_name("sink", context.sink))

    @property
    def folder(self) -> str:
        """The hidden folder below the table's. No name holds `~`, so no two owners share one."""
        return f"_twophase~{self.job}~{self.sink}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the owner of a hidden folder; None if a folder is not one."""
        prefix, *owner = name.split("~")
        return cls(*owner) if prefix == "_twophase" and len(owner) == 2 else None

    @property
    def new_folder(self) -> str:
        """The hidden folder's name while it is being created; no owner has this name."""
        return f"{self.folder}~new"


class PieceName(TaskPieceName):
    """The name of a piece, unique among its owner's pieces."""

    def transaction(self, owner: Owner, offsets_hash: str = "") -> TransactionId:
        """Return the transaction of the piece; the name does not hold the offsets."""
        return TransactionId(
            owner.job, self.lineage, self.checkpoint, self.attempt, owner.sink, offsets_hash
        )


def file_name(transaction: TransactionId, subtask: Subtask, number: int, suffix: str) -> str:
    """Return the name of a committed file: the piece's whole identity, and the file's number."""
    return f"{file_prefix(transaction, subtask)}{transaction.offsets_hash[:12]}-{number}{suffix}"


def file_prefix(transaction: TransactionId, subtask: Subtask) -> str:
    """Return the prefix that all committed files of a piece have, and no file of another piece."""
    return PieceOwner(transaction.job, transaction.sink).file_prefix(
        PieceName.of(transaction, subtask)
    )


@dataclass(frozen=True)
class FileName:
    """The identity in the name of a committed file.

    Attributes:
        prefix: see `file_prefix`; it tells the owner too.
        piece: its piece.
        number: its number.
    """

    prefix: str
    piece: PieceName
    number: int


def parse_file(name: str) -> FileName | None:
    """Return the identity in the name of a committed file of any owner; None for any other name."""
    match = _FILE.fullmatch(name)
    piece = None if match is None else PieceName.parse(match[2])
    return None if match is None or piece is None else FileName(match[1], piece, int(match[3]))


def fence_name(attempt: Attempt) -> str:
    """Return the name of a fence."""
    return f"fence-{attempt}"


def parse_fence(name: str) -> Attempt | None:
    """Return the fence that a name holds; None for any other name."""
    match = _FENCE.fullmatch(name)
    return None if match is None else Attempt(int(match[1]), int(match[2]))


def mark_name(lineage: str, checkpoint: int) -> str:
    """Return the name of a lineage's high-water mark."""
    return f"{lineage}~{checkpoint}"


def parse_mark(name: str) -> tuple[str, int] | None:
    """Return the lineage and checkpoint that a mark's name holds; None for any other name."""
    match = _MARK.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))
