"""The checkpoints that a rewind keeps (`CanRewind`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RewindPoint:
    """The checkpoints that stay; all others of the job and sink are taken back.

    Attributes:
        last: for each lineage that keeps some, the last one.
    """

    last: Mapping[str, int]

    def last_of(self, lineage: str) -> int:
        """Return the last checkpoint of a lineage that stays; -1 if none does."""
        return self.last.get(lineage, -1)

    def keeps(self, lineage: str, checkpoint: int) -> bool:
        """Return whether a checkpoint stays."""
        return checkpoint <= self.last_of(lineage)

    def ahead(self, committed: Mapping[str, int]) -> dict[str, int]:
        """Return those lineages, with their highest checkpoint, of which some are taken back."""
        return {
            lineage: checkpoint
            for lineage, checkpoint in committed.items()
            if not self.keeps(lineage, checkpoint)
        }
