"""Pieces that no commit names: finds those in doubt and aborts them.

Only files that bear a piece's own name, or are listed in its manifest, are ever deleted, and only
if the log shows that no commit since the piece was begun names one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from twophase.contract.committable import Committable
from twophase.contract.sink import decided_elsewhere
from twophase.internals.failpoints import failpoint
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.names import PieceName
from twophase.sinks.delta.pieces import InLog, Piece
from twophase.sinks.delta.table import DeltaTable

_log = logging.getLogger("twophase.sinks.delta")


class Orphans:
    """Finds and aborts pieces.

    Args:
        table: the table of the job's sink.
    """

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._pieces = table.pieces

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        owner, target = self._table.owner, self._table.target
        return [
            piece.committable(owner, target)
            for piece in self._pieces.all()
            if not self._is_committed(piece)
        ]

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`: a piece without a manifest, of which no commit names a file."""
        return [piece for piece in pieces if self._is_unfinished(PieceName.of(piece.transaction))]

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        for committable in committables:
            self._abort_one(committable)

    def forget_committed(self, lineage: str, checkpoint: int) -> None:
        """Remove records that a crash left behind after the commit of their piece."""
        for piece in self._pieces.all():
            if (
                piece.name.lineage == lineage
                and piece.name.checkpoint <= checkpoint
                and self._is_committed(piece)
            ):
                self._pieces.forget(piece.name)

    def _abort_one(self, committable: Committable) -> None:
        """Abort one piece.

        A driver with another folder may have decided it. Its commit may have read the manifest
        already and not be in the log yet: the fence that is written again makes it fail. Without
        a manifest there is no such commit: one that begins from here on finds the abort
        (docs/decisions/0043).
        """
        piece = self._pieces.get(PieceName.of(committable.transaction))
        if self._pieces.begin_abort(piece.name):
            Fence(self._table).write_again()
        named = self._named_by(piece)
        if named is InLog.UNKNOWN:
            _log.warning(
                "%s: %s. Its data files are left to VACUUM.", committable.transaction, named.value
            )
        else:
            self._pieces.delete_data(piece, self._table.folder_depth())
        failpoint("C20")
        self._pieces.forget(piece.name)

    def _named_by(self, piece: Piece) -> InLog:
        """Return why no commit names a file of a piece that is to be aborted.

        Raises:
            StopJobError: one does.
        """
        named = self._pieces.named_by(piece)
        if isinstance(named, int):
            self._pieces.refuse_abort(piece.name)
            raise decided_elsewhere(piece.name, f"the table, whose commit {named} names its files")
        return named

    def _is_unfinished(self, name: PieceName) -> bool:
        return (
            not self._pieces.has_manifest(name)
            and not self._pieces.is_being_aborted(name)
            and self._pieces.named_by(self._pieces.get(name)) is InLog.ABSENT
        )

    def _is_committed(self, piece: Piece) -> bool:
        return isinstance(self._pieces.named_by(piece), int)
