"""Names: how a piece and its files are recognised by whoever finds them.

    _twophase~<job>~<sink>/             below the table's folder; readers skip names that begin with '_'
        fence-<generation>.<counter>/   the fence is this name; there is always exactly one
            staged/<piece>/             pre-committed, or being written: <number>, and in the end `manifest`
            done/<piece>/manifest       committed
            marks/<lineage>~<n>         committed up to checkpoint n; what was in `done` for it is gone
    dt=2026-08-01/twophase-<owner>-<piece>-<offsets>-<number>.parquet          a committed file

A piece is `<lineage>-<checkpoint>-<generation>.<counter>-<subtask>.<task attempt>`. Nothing is used twice (invariant I5).
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
    """Whose pieces they are.

    Attributes:
        job: the job's name.
        sink: the sink's name within the job.
    """

    job: str
    sink: str

    @property
    def folder(self) -> str:
        """The hidden folder below the table's. `~` is in no name of a job or sink, so no two owners share one."""
        return f"_twophase~{self.job}~{self.sink}"

    @property
    def new_folder(self) -> str:
        """What it is called while it is made; no owner's."""
        return f"{self.folder}~new"


@dataclass(frozen=True, order=True)
class PieceName:
    """What tells one piece of an owner from another."""

    lineage: str
    checkpoint: int
    attempt: Attempt
    subtask: Subtask

    def __str__(self) -> str:
        return f"{self.lineage}-{self.checkpoint}-{self.attempt}-{self.subtask}"

    @classmethod
    def of(cls, transaction: TransactionId, subtask: Subtask) -> Self:
        """The name of the piece of one task attempt.

        Raises:
            ValueError: the lineage is no UUID.
        """
        name = cls(transaction.lineage, transaction.checkpoint, transaction.attempt, subtask)
        if cls.parse(str(name)) != name:
            raise ValueError(f"{name} cannot be the name of a piece: the lineage has to be a UUID in lower case")
        return name

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The reverse of `str`; None if `text` is not of this form."""
        match = _PIECE.fullmatch(text)
        if match is None:
            return None
        checkpoint, generation, counter, index, task_attempt = map(int, match.groups()[1:])
        name = cls(match[1], checkpoint, Attempt(generation, counter), Subtask(index, task_attempt))
        return name if str(name) == text else None

    def transaction(self, owner: Owner, offsets_hash: str = "") -> TransactionId:
        """Whose piece it is; the name alone does not tell the offsets."""
        return TransactionId(owner.job, self.lineage, self.checkpoint, self.attempt, owner.sink, offsets_hash)


def file_name(transaction: TransactionId, subtask: Subtask, number: int, suffix: str) -> str:
    """The name of a committed file: the whole identity of the piece, and which of its files it is."""
    return f"{file_prefix(transaction, subtask)}{transaction.offsets_hash[:12]}-{number}{suffix}"


def file_prefix(transaction: TransactionId, subtask: Subtask) -> str:
    """How the names of all committed files of a piece begin, and of no other piece's."""
    owner = short_hash(f"{transaction.job}/{transaction.sink}")
    return f"twophase-{owner}-{PieceName.of(transaction, subtask)}-"


def fence_name(attempt: Attempt) -> str:
    """The name that a fence has."""
    return f"fence-{attempt}"


def parse_fence(name: str) -> Attempt | None:
    """The reverse of `fence_name`; None for any other name."""
    match = _FENCE.fullmatch(name)
    return None if match is None else Attempt(int(match[1]), int(match[2]))


def mark_name(lineage: str, checkpoint: int) -> str:
    """The name of a lineage's high-water mark."""
    return f"{lineage}~{checkpoint}"


def parse_mark(name: str) -> tuple[str, int] | None:
    """The reverse of `mark_name`; None for any other name."""
    match = _MARK.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))
