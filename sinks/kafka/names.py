"""Names of pieces, marks and fences: transactional ids, and keys of the ledger.

    twophase/<topic>/<job>/<sink>/<lineage>-<checkpoint>-<attempt>-<subtask>    a piece
    twophase/<topic>/<job>/<sink>/<...>/copy    copies a staged piece
    staged/<topic>/<job>/<sink>/<...>           says that a piece is staged
    mark/<topic>/<job>/<sink>/<lineage>/<checkpoint>
    fence/<topic>/<job>/<sink>/<attempt>

The transactional id of a piece is that of one task attempt, and is never used again (I5). That of
its copy is used by whoever copies it, so that Kafka closes it to all before. None of the names has
a slash in it, so that no prefix is that of two owners. No key is written by two drivers with
different values: whichever of them comes last, compaction keeps the higher one.
"""

from __future__ import annotations

from dataclasses import dataclass

from twophase.contract.committable import Committable
from twophase.contract.piece import PieceOwner, TaskPieceName
from twophase.ids import Attempt, Subtask, TransactionId, short_hash

_PIECE, _STAGED, _MARK, _FENCE = "twophase", "staged", "mark", "fence"


@dataclass(frozen=True)
class Owner(PieceOwner):
    """One sink of one job, and the topic that it writes to.

    Attributes:
        topic: the topic's name.
    """

    topic: str

    @property
    def prefix(self) -> str:
        """The beginning of the transactional ids of its pieces, and of nobody else's."""
        return f"{_PIECE}/{self._path}/"

    @property
    def nobody(self) -> str:
        """A transactional id that begins so, and that no piece has."""
        return self.prefix + "nobody"

    def piece(self, transaction: TransactionId, subtask: Subtask) -> str:
        """Return the transactional id of a piece."""
        return self.prefix + str(TaskPieceName.of(transaction, subtask))

    @property
    def staged_prefix(self) -> str:
        """The beginning of the keys that say which of its pieces are staged."""
        return f"{_STAGED}/{self._path}/"

    def staged(self, name: str) -> str:
        """Return the key that says that a piece is staged."""
        return self.staged_prefix + name.rpartition("/")[2]

    def staging(self, ledger: str) -> str:
        """Return the name of the topic in which its rows wait: no other owner has it, nor has
        this one with another ledger.
        """
        return f"twophase-staging-{self.job}-{self.sink}-{short_hash(f'{self._path}/{ledger}')}"

    def mark(self, lineage: str, checkpoint: int) -> str:
        """Return the key of a mark."""
        return f"{_MARK}/{self._path}/{lineage}/{checkpoint}"

    def fence(self, attempt: Attempt) -> str:
        """Return the key of a fence."""
        return f"{_FENCE}/{self._path}/{attempt}"

    @property
    def _path(self) -> str:
        return f"{self.topic}/{self.job}/{self.sink}"


def name_of(topic: str, piece: Committable) -> str:
    """Return the transactional id of a piece."""
    transaction = piece.transaction
    return Owner(transaction.job, transaction.sink, topic).piece(transaction, piece.subtask)


def copy_of(name: str) -> str:
    """Return the transactional id under which a staged piece is copied."""
    return f"{name}/copy"


def unfinished_piece(name: str, target: str) -> Committable | None:
    """Return the piece that a transactional id names; None if it names none.

    Args:
        name: the id.
        target: where its rows go.
    """
    parts = name.split("/")
    if len(parts) != 5 or parts[0] != _PIECE:
        return None
    found = TaskPieceName.parse(parts[4])
    if found is None:
        return None
    transaction = TransactionId(
        parts[2], found.lineage, found.checkpoint, found.attempt, parts[3], ""
    )
    return Committable(transaction, found.subtask, target, 0)
