"""Limits a start's first micro-batches: rows are visible soon, and Spark compiles on few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twophase.sources.kafka.offsets import Limits

FIRST_RECORDS = 20_000
GROWTH = 3
LASTS_S = 60.0
"""Afterwards every micro-batch may have its full size: with a trigger of an hour, small ones
would be late by hours.
"""


class SlowStart:
    """Caps the limit of the first micro-batches; each may admit three times the last one's.

    A micro-batch without a limit stays unlimited: some triggers read everything in one.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._cap = FIRST_RECORDS
        self._clock = clock
        self._ends_at = clock() + LASTS_S

    def limit(self, limits: Limits) -> Limits:
        """Return the limits of the next micro-batch."""
        if limits.per_trigger is None or self._clock() >= self._ends_at:
            return limits
        return replace(limits, per_trigger=min(limits.per_trigger, self._cap))

    def admitted(self) -> None:
        """Note that a micro-batch was planned."""
        if self._clock() < self._ends_at:
            self._cap *= GROWTH
