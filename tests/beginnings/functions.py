"""Functions with state, for jobs that are begun again."""

from __future__ import annotations

from twophase.contract.listener import InitializationContext, SnapshotContext


class Counted:
    """Counts the checkpoints that it was asked for.

    Attributes:
        count: of the lineage, all its drivers and what it continues.
    """

    def __init__(self) -> None:
        self.count = 0

    def snapshot_state(self, context: SnapshotContext) -> dict[str, int]:
        self.count += 1
        return {"count": self.count}

    def initialize_state(self, context: InitializationContext) -> None:
        self.count = int(context.state.get("count", 0))
