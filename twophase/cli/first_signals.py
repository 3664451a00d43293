"""SIGINT and SIGTERM while the command that would handle them is still being imported.

They are kept until then: an exception inside an import may be caught, or leave a module half made.
This module and what it imports come before all others, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

STOPPABLE = "run"
"""The command that ends cleanly after a signal."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE_BASE = 128

_kept: list[int] = []


def keep_signals() -> None:
    """Keep the first signal from now on; the second ends the process."""
    for number in SIGNALS:
        signal.signal(number, _keep)


def _keep(number: int, _: FrameType | None) -> None:
    if _kept:
        os._exit(EXIT_CODE_BASE + number)
    _kept.append(number)


def send_kept_signal() -> None:
    """Send the signal that has been kept, if any, once more: now there is another handler."""
    while _kept:
        signal.raise_signal(_kept.pop())
