"""The first micro-batches of a start are small: rows are visible within seconds, and Spark compiles on little."""

from __future__ import annotations

from dataclasses import replace

from twophase.sources.kafka.offsets import Limits

FIRST_RECORDS = 20_000
GROWTH = 3


class SlowStart:
    """Caps the limit of the first micro-batches; each may admit three times what the one before it could.

    A micro-batch that has no limit keeps none: some triggers read all there is in one.
    """

    def __init__(self) -> None:
        self._cap = FIRST_RECORDS

    def limit(self, limits: Limits) -> Limits:
        """What the next micro-batch may admit."""
        if limits.per_trigger is None:
            return limits
        return replace(limits, per_trigger=min(limits.per_trigger, self._cap))

    def admitted(self) -> None:
        """A micro-batch was planned."""
        self._cap *= GROWTH
