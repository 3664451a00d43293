"""Tells sources that a checkpoint is complete, such as for group offsets.

These inform other tools (lag monitors, a later start from `committed`); the job itself never needs
them, so a failure is an event and the next checkpoint covers it.
"""

from __future__ import annotations

from collections.abc import Sequence

from twophase.contract.source import SourceLeg
from twophase.contract.source_entry_points import source_of
from twophase.events import GroupOffsetsDelayed, Observers


class SourceNotifications:
    """Notifies every source of a job.

    Args:
        job: the job's name.
        legs: the sources of the plan, in plan order.
        observers: notified of failures.

    Raises:
        ConfigError: an option of a source is wrong.
    """

    def __init__(self, job: str, legs: Sequence[SourceLeg], observers: Observers) -> None:
        self._job = job
        self._observers = observers
        self._sources = [(leg, source_of(leg.name)) for leg in legs]
        self._lines: dict[int, tuple[str | None, ...]] = {}
        for leg, source in self._sources:
            source.check_options(leg)

    def remember(self, checkpoint: int, lines: tuple[str | None, ...]) -> None:
        """Keep the end offsets of a checkpoint until it is complete."""
        self._lines[checkpoint] = lines

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        """Notify the sources of a checkpoint."""
        lines = self._lines.pop(checkpoint, None)
        self._lines = {later: kept for later, kept in self._lines.items() if later > checkpoint}
        for (leg, source), line in zip(self._sources, lines or (), strict=False):
            if line is None:
                continue
            try:
                source.notify_committed(leg, line)
            except Exception as error:  # noqa: BLE001 offsets inform only; the data is committed
                self._observers(
                    GroupOffsetsDelayed(self._job, checkpoint, f"{type(error).__name__}: {error}")
                )

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        """Do nothing: no source was told of it."""

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        """Do nothing: the sources have heard of newer ones."""

    def close(self) -> None:
        """Close the connections.

        Raises:
            Exception: the first failure. The other sources are closed nevertheless.
        """
        failures: list[Exception] = []
        for leg, source in self._sources:
            try:
                source.close(leg)
            except Exception as error:  # noqa: BLE001 the first one is raised below
                failures.append(error)
        if failures:
            raise failures[0]
