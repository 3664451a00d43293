"""Time, passed in so that tests control it. No decision ever depends on a clock (hazard H17)."""

from __future__ import annotations

import threading
import time
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
