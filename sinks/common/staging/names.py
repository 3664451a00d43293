"""The names by which pieces and their files are recognised.

    _twophase~<job>~<sink>/             below the table's folder; readers skip names that begin with '_'
        fence-<generation>.<counter>/   this name is the fence; there is always exactly one
            staged/<piece>/             pre-committed, or being written: <number>, and at the end `manifest`
            done/<piece>/manifest       committed
            marks/<lineage>~<n>         committed up to checkpoint n; its entries in `done` are removed
    dt=2026-08-01/twophase-<owner>-<piece>-<offsets>-<number>.parquet          a committed file

A piece is `<lineage>-<checkpoint>-<generation>.<counter>-<subtask>.<task attempt>`. No name is used twice (invariant I5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from twophase.ids import Attempt, Subtask, TransactionId, short_hash

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ATTEMPT = r"(\d{1,10})\.(\d{1,10})"
_PIECE = re.compile(rf"({_UUID})-(\d{{1,18}})-{_ATTEMPT}-(\d{{1,10}})\.(\d{{1,19}})", re.ASCII)
_MARK = re.compile(rf"({_UUID})~(\d{{1,18}})", re.ASCII)
_FENCE = re.compile(rf"fence-{_ATTEMPT}", re.ASCII)


@dataclass(frozen=True)
class Owner:
    """The owner of pieces: one sink of one job.

    Attributes:
        job: the job's name.
        sink: the sink's name within the job.
    """

    job: str
    sink: str

    @property
    def folder(self) -> str:
        """The hidden folder below the table's. No job or sink name holds `~`, so no two owners share a folder."""
        return f"_twophase~{self.job}~{self.sink}"

    @property
    def new_folder(self) -> str:
        """The hidden folder's name while it is being created; no owner has this name."""
        return f"{self.folder}~new"


@dataclass(frozen=True, order=True)
class PieceName:
    """The name of a piece, unique among its owner's pieces."""

    lineage: str
    checkpoint: int
    attempt: Attempt
    subtask: Subtask

    def __str__(self) -> str:
        return f"{self.lineage}-{self.checkpoint}-{self.attempt}-{self.subtask}"

    @classmethod
    def of(cls, transaction: TransactionId, subtask: Subtask) -> Self:
        """Return the name of the piece of one task attempt.

        Raises:
            ValueError: the lineage is not a UUID.
        """
        name = cls(transaction.lineage, transaction.checkpoint, transaction.attempt, subtask)
        if cls.parse(str(name)) != name:
            raise ValueError(f"{name} cannot be the name of a piece: the lineage has to be a UUID in lower case")
        return name

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the name that `text` holds; None if it is not in this format. The reverse of `str`."""
        match = _PIECE.fullmatch(text)
        if match is None:
            return None
        checkpoint, generation, counter, index, task_attempt = map(int, match.groups()[1:])
        name = cls(match[1], checkpoint, Attempt(generation, counter), Subtask(index, task_attempt))
        return name if str(name) == text else None

    def transaction(self, owner: Owner, offsets_hash: str = "") -> TransactionId:
        """Return the transaction of the piece; the name does not hold the offsets."""
        return TransactionId(owner.job, self.lineage, self.checkpoint, self.attempt, owner.sink, offsets_hash)


def file_name(transaction: TransactionId, subtask: Subtask, number: int, suffix: str) -> str:
    """Return the name of a committed file: the whole identity of the piece, and the number of the file."""
    return f"{file_prefix(transaction, subtask)}{transaction.offsets_hash[:12]}-{number}{suffix}"


def file_prefix(transaction: TransactionId, subtask: Subtask) -> str:
    """Return the prefix that all committed files of a piece have, and no file of another piece."""
    owner = short_hash(f"{transaction.job}/{transaction.sink}")
    return f"twophase-{owner}-{PieceName.of(transaction, subtask)}-"


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
