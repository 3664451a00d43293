"""Orders the lineages that targets have proof of; the log may know none of them.

A target keeps a mark of each lineage for ever, so after any restore of the job it names several.
Sources of their order:

    1. the log, for the lineages that it knows; all others began after it was written
    2. generations: each lineage begins with a driver whose generation is above all earlier ones
    3. the ledgers: the first checkpoint of a lineage folds the proofs of its ancestors into marks,
       in every sink. So if a target names pieces of one lineage and has only a mark of another, the
       one with the mark is older. This is never needed for a lineage with waiting pieces:
       they have a generation
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from twophase.protocol.committable import Committable
from twophase.protocol.sink import NamesPieces, OpenSink, SinkHistory
from twophase.state.history import History


class LineageOrder:
    """Tells which of two lineages is newer.

    Args:
        history: the history of the log.
        remembered: the history of each target.
        sinks: by name.
        in_doubt: the pieces in doubt in each of them.
    """

    def __init__(
        self,
        history: History,
        remembered: Mapping[str, SinkHistory],
        sinks: Mapping[str, OpenSink],
        in_doubt: Mapping[str, Sequence[Committable]],
    ) -> None:
        self._ranks: dict[str, int] = {}
        for place, lineage in enumerate(history.lineages):
            for ancestor in lineage.ancestors:
                self._ranks.setdefault(ancestor, 2 * place)
            self._ranks[lineage.id] = 2 * place + 1
        self._ends = {
            name: last for known in history.lineages for name, last in known.ancestors.items()
        }
        self._proven = {name for memory in remembered.values() for name in memory.committed}
        self._generations: dict[str, int] = {}
        self._followed: set[tuple[str, str]] = set()
        if len(self._proven - self._ranks.keys()) > 1:
            self._read_pieces(remembered, sinks, in_doubt)

    def is_known(self, lineage: str) -> bool:
        """Return whether the log knows the lineage."""
        return lineage in self._ranks

    def rank(self, lineage: str) -> float:
        """Return its position in the log; a lineage that the log does not know comes last."""
        return self._ranks.get(lineage, float("inf"))

    def is_newer(self, one: str, other: str) -> bool:
        """Return whether `one` is known to have begun after `other`."""
        ranks = self.rank(one), self.rank(other)
        if ranks[0] != ranks[1]:
            return ranks[0] > ranks[1]
        if one in self._generations and other in self._generations:
            return self._generations[one] > self._generations[other]
        return (other, one) in self._followed

    def newest(self, lineages: Collection[str]) -> list[str]:
        """Return those of them than which no other is newer: one, if their order is known."""
        return sorted(
            one for one in lineages if not any(self.is_newer(other, one) for other in lineages)
        )

    def is_followed(self, lineage: str, checkpoint: int) -> bool:
        """Return whether a newer lineage in a target continues from here: all before is committed.

        Another driver may have continued the lineage past the end that the log knows; no lineage
        follows that part.
        """
        if checkpoint > self._ends.get(lineage, checkpoint):
            return False
        return any(self.is_newer(other, lineage) for other in self._proven)

    def _read_pieces(
        self,
        remembered: Mapping[str, SinkHistory],
        sinks: Mapping[str, OpenSink],
        in_doubt: Mapping[str, Sequence[Committable]],
    ) -> None:
        for name, memory in remembered.items():
            sink = sinks[name]
            if isinstance(sink, NamesPieces):
                pieces = {
                    one: sink.committed_pieces(one, newest)
                    for one, newest in memory.committed.items()
                }
                named = {one for one, found in pieces.items() if found}
                self._followed |= {(mark, one) for mark in pieces.keys() - named for one in named}
                for one in named:
                    self._note(one, (int(piece.partition(".")[0]) for piece in pieces[one]))
        for piece in (piece for found in in_doubt.values() for piece in found):
            self._note(piece.transaction.lineage, [piece.transaction.attempt.generation])

    def _note(self, lineage: str, generations: Iterable[int]) -> None:
        self._generations[lineage] = max([self._generations.get(lineage, 0), *generations])
