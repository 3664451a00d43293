"""Measures the protocol's own share of a checkpoint: everything except Spark and the targets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twophase.coordinator.clock import Clock


class Stopwatch:
    """Runs from its creation; time inside `elsewhere` does not count as the protocol's.

    Args:
        clock: the time.
        already_s: how long the checkpoint has been under way, elsewhere.
    """

    def __init__(self, clock: Clock, already_s: float = 0.0) -> None:
        self._clock = clock
        self._started_s = clock.monotonic_s() - already_s
        self._elsewhere_s = already_s

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Exclude the time in which Spark or a target works."""
        began_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            self._elsewhere_s += self._clock.monotonic_s() - began_s

    @property
    def total_s(self) -> float:
        """Seconds since creation."""
        return self._clock.monotonic_s() - self._started_s

    @property
    def protocol_s(self) -> float:
        """The part of them spent in the protocol itself."""
        return self.total_s - self._elsewhere_s
