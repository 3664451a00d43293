"""The names of pieces and their owner in a target of files, folders or records (I5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self, TypeVar

from twophase.ids import Attempt, Subtask, TransactionId, short_hash

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Pattern of a lineage."""
ATTEMPT = r"(\d{1,10})\.(\d{1,10})"
"""Pattern of an attempt."""
_BATCH = re.compile(rf"({UUID})-(\d{{1,18}})-{ATTEMPT}", re.ASCII)
_TASK = re.compile(rf"{_BATCH.pattern}-(\d{{1,10}})\.(\d{{1,19}})", re.ASCII)


@dataclass(frozen=True)
class PieceOwner:
    """The owner of pieces: one sink of one job.

    Attributes:
        job: the job's name.
        sink: the sink's name within the job.
    """

    job: str
    sink: str

    def file_prefix(self, piece: BatchPieceName | TaskPieceName) -> str:
        """Return the prefix that all data files of a piece have, and no file of another piece."""
        return f"twophase-{short_hash(f'{self.job}/{self.sink}')}-{piece}-"


@dataclass(frozen=True, order=True)
class BatchPieceName:
    """The name of a transaction's only piece.

    It is `<lineage>-<checkpoint>-<generation>.<counter>`.
    """

    lineage: str
    checkpoint: int
    attempt: Attempt

    def __str__(self) -> str:
        return f"{self.lineage}-{self.checkpoint}-{self.attempt}"

    @classmethod
    def of(cls, transaction: TransactionId) -> Self:
        """Return the name of the piece of a transaction.

        Raises:
            ValueError: the lineage is not a UUID.
        """
        return _parsable(cls(transaction.lineage, transaction.checkpoint, transaction.attempt))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the name that `text` holds, the reverse of `str`; None if it is no such name."""
        match = _BATCH.fullmatch(text)
        if match is None:
            return None
        name = cls(match[1], int(match[2]), Attempt(int(match[3]), int(match[4])))
        return name if str(name) == text else None


@dataclass(frozen=True, order=True)
class TaskPieceName:
    """The name of the piece of one task attempt.

    It is `<lineage>-<checkpoint>-<generation>.<counter>-<subtask>.<task attempt>`.
    """

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
        return _parsable(
            cls(transaction.lineage, transaction.checkpoint, transaction.attempt, subtask)
        )

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the name that `text` holds, the reverse of `str`; None if it is no such name."""
        match = _TASK.fullmatch(text)
        if match is None:
            return None
        checkpoint, generation, counter, index, task_attempt = map(int, match.groups()[1:])
        name = cls(match[1], checkpoint, Attempt(generation, counter), Subtask(index, task_attempt))
        return name if str(name) == text else None


_Name = TypeVar("_Name", bound=BatchPieceName | TaskPieceName)


def _parsable(name: _Name) -> _Name:
    if type(name).parse(str(name)) != name:
        raise ValueError(
            f"{name} cannot be the name of a piece: the lineage has to be a UUID in lower case"
        )
    return name
