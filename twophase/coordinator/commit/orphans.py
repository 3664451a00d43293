"""Closes the older attempts of one sink, step 3c of a start: none of their pieces is left, and none
can arrive.

    A. scan, and abort the orphans            they may hold locks that the fence needs
    B. raise the sink's fence                 no older writer can pre-commit any more
    C. scan and abort again                   for arrivals in between; this scan is
                                              final (hazard H44)

An orphan belongs to this job and sink, to an attempt below the fence, and to no decision's list of
pieces. Pieces of a superseded attempt of a task are orphans too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenSink
from twophase.events import Observers, OrphansAborted
from twophase.ids import Attempt, Subtask
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint

PieceKey = tuple[str, str, int, Attempt, Subtask]
MayAbort = Callable[[Sequence[Committable]], Sequence[Committable]]


def pieces_of(checkpoints: Iterable[CompletedCheckpoint]) -> frozenset[PieceKey]:
    """Return the keys of the pieces that decided checkpoints list."""
    return frozenset(
        key_of(piece)
        for checkpoint in checkpoints
        for pieces in checkpoint.committables.values()
        for piece in pieces
    )


class Orphans:
    """Finds and aborts the orphans of one sink.

    Args:
        job: the job's name, for events.
        name: the sink's name.
        sink: the sink.
        observers: are notified of aborted orphans.
        may_abort: called with the orphans found, returns those that may be aborted; if it raises,
            nothing is aborted.
    """

    def __init__(
        self, job: str, name: str, sink: OpenSink, observers: Observers, may_abort: MayAbort
    ) -> None:
        self._job = job
        self._name = name
        self._sink = sink
        self._observers = observers
        self._may_abort = may_abort

    def close(self, below: Attempt, kept: frozenset[PieceKey]) -> int:
        """Close every attempt below `below`; return how many orphans were aborted.

        Args:
            below: the first attempt that stays open.
            kept: pieces of decided checkpoints that are not known as committed yet.
        """
        aborted = self.abort(below, kept)
        self._sink.fence(below)
        return aborted + self.abort(below, kept)

    def close_if_none(self, below: Attempt, kept: frozenset[PieceKey]) -> bool:
        """Close only while there is nothing to abort; return whether all is closed.

        If not, call `close` next.

        Args:
            below: the first attempt that stays open.
            kept: pieces of decided checkpoints that are not known as committed yet.
        """
        if self._found(below, kept):
            return False
        self._sink.fence(below)
        return not self._found(below, kept)

    def abort(self, below: Attempt, kept: frozenset[PieceKey]) -> int:
        """Abort the current orphans. Without `close`, more may still arrive."""
        found = self._found(below, kept)
        if found and (found := [*self._may_abort(found)]):
            self._sink.abort(found)
            names = tuple(f"{piece.transaction}/{piece.subtask}" for piece in found)
            self._observers(OrphansAborted(self._job, self._name, names))
        return len(found)

    def _found(self, below: Attempt, kept: frozenset[PieceKey]) -> list[Committable]:
        return [
            piece
            for piece in self._sink.in_doubt()
            if piece.transaction.attempt < below and key_of(piece) not in kept
        ]


def key_of(piece: Committable) -> PieceKey:
    """Return the key that identifies a piece."""
    transaction = piece.transaction
    return (
        transaction.sink,
        transaction.lineage,
        transaction.checkpoint,
        transaction.attempt,
        piece.subtask,
    )
