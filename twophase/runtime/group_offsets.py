"""Group offsets, committed to Kafka when a checkpoint is complete.

They inform other tools (lag monitors, a later start from `committed`); the job itself never needs
them, so a failure is an event and the next checkpoint covers it.
"""

from __future__ import annotations

from collections.abc import Sequence

from twophase.events import GroupOffsetsDelayed, Observers
from twophase.runtime.logical_plan import KAFKA, SourceLeg
from twophase.sources.kafka import GroupOffsets


class GroupOffsetsListener:
    """Commits the group offsets of every Kafka source that has a `group.id`.

    Args:
        job: the job's name.
        legs: the sources of the plan, in plan order.
        observers: notified of failures.
    """

    def __init__(self, job: str, legs: Sequence[SourceLeg], observers: Observers) -> None:
        self._job = job
        self._observers = observers
        self._groups = {
            position: GroupOffsets(leg.options)
            for position, leg in enumerate(legs)
            if leg.name == KAFKA and "group.id" in leg.options
        }
        self._lines: dict[int, tuple[str | None, ...]] = {}

    def remember(self, checkpoint: int, lines: tuple[str | None, ...]) -> None:
        """Keep the end offsets of a checkpoint until it is complete."""
        self._lines[checkpoint] = lines

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        """Commit the group offsets of a checkpoint, never backwards."""
        lines = self._lines.pop(checkpoint, None)
        self._lines = {later: kept for later, kept in self._lines.items() if later > checkpoint}
        for position, group in self._groups.items():
            line = lines[position] if lines else None
            if line is None:
                continue
            try:
                group.commit(line)
            except Exception as error:  # noqa: BLE001 offsets inform only; the data is committed
                self._observers(
                    GroupOffsetsDelayed(self._job, checkpoint, f"{type(error).__name__}: {error}")
                )

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        """Do nothing: nothing was committed to the group."""

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        """Do nothing: the group holds newer offsets."""

    def close(self) -> None:
        """Close the connections."""
        for group in self._groups.values():
            group.close()
