"""A deadline: the time that a wait may still take."""

from __future__ import annotations

import time


class Deadline:
    """Counts down from its construction.

    Args:
        timeout_s: seconds until it is over.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end_s = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end_s - time.monotonic())

    @property
    def over(self) -> bool:
        """True if no time is left."""
        return self.remaining_s == 0.0
