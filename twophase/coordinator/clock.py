"""Time, passed in so that tests control it. No decision ever depends on a clock (hazard H17).

`Stopwatch` measures the protocol's own share of a checkpoint: all but Spark and the targets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """The coordinator's view of time."""

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""

    def unix_ms(self) -> int:
        """Return Unix time in milliseconds, for people to read."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set or the timeout expires; return whether it is set."""


class SystemClock:
    """The machine's clock."""

    def monotonic_s(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    def unix_ms(self) -> int:
        """Return Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set or the timeout expires."""
        return event.wait(timeout_s)


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
