"""The point that a rewind goes back to (`CanRewind`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RewindPoint:
    """The last checkpoint of each lineage that stays; a rewind removes all others of job and sink.

    Attributes:
        last: by lineage; a lineage that is missing is removed whole.
    """

    last: Mapping[str, int]

    def last_of(self, lineage: str) -> int:
        """Return the last checkpoint of a lineage that stays; -1 if none does."""
        return self.last.get(lineage, -1)

    def keeps(self, lineage: str, checkpoint: int) -> bool:
        """Return whether a checkpoint stays."""
        return checkpoint <= self.last_of(lineage)

    def ahead(self, committed: Mapping[str, int]) -> dict[str, int]:
        """Return the lineages, with their highest checkpoint, that go beyond this point."""
        return {
            lineage: checkpoint
            for lineage, checkpoint in committed.items()
            if not self.keeps(lineage, checkpoint)
        }
