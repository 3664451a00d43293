"""SIGINT and SIGTERM: the first stops the job cleanly, the second ends the process at once.

Ending at once is safe: recovery does at the next start what the driver could not do any more.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h\n"  # a live panel hides it
_EXIT_CODE_BASE = 128
_STANDARD_ERROR = 2

_log = logging.getLogger("twophase")


@contextmanager
def stop_on_signals(stop: Callable[[], None], first: Callable[[], None]) -> Iterator[None]:
    """Handle both signals inside the context; only in the main thread.

    Args:
        stop: ends the job; called once, in a thread of its own, because the main thread may be in the middle of anything.
        first: called there before it, to tell the user.
    """
    asked, over = threading.Event(), threading.Event()
    count = 0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            _exit_at_once(number)
        asked.set()

    def wait() -> None:
        asked.wait()
        if over.is_set():
            return
        first()
        try:
            stop()
        except Exception:  # noqa: BLE001 the job ends by itself when Spark is gone, and reports why
            _log.debug("The job could not be stopped", exc_info=True)

    threading.Thread(target=wait, name="twophase-stop", daemon=True).start()
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        over.set()
        asked.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_at_once(number: int) -> None:
    if os.isatty(_STANDARD_ERROR):
        os.write(_STANDARD_ERROR, _SHOW_CURSOR)
    os._exit(_EXIT_CODE_BASE + number)
