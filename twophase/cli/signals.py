"""SIGINT and SIGTERM: the first stops the job cleanly, the second ends the process at once, and so does a stop that hangs.

Ending at once is safe: recovery does at the next start what the driver could not do any more.

Signals are read from a wakeup pipe in a thread of its own. A Python handler would run in the main thread only, which may be
in the middle of a call to Spark or to a target for as long as that takes.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h\n"  # a live panel hides it
_EXIT_CODE_BASE = 128
_STANDARD_ERROR = 2
_DEADLINE_S = 60.0
"""Of a clean stop. systemd waits for 90 s before it kills, so its log has our words."""

_log = logging.getLogger("twophase")


@contextmanager
def stop_on_signals(
    stop: Callable[[], None],
    first: Callable[[], None],
    hangs: Callable[[str], None],
    deadline_s: float = _DEADLINE_S,
) -> Iterator[None]:
    """Handle both signals inside the context; only in the main thread.

    Args:
        stop: ends the job; called once, in a thread of its own.
        first: called there before it, to tell the user.
        hangs: told why the process ends with code 1, when this context has not ended in time after the first signal.
        deadline_s: that time, in seconds.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    deadline = threading.Timer(deadline_s, _give_up, (hangs, deadline_s))
    deadline.name, deadline.daemon = "twophase-deadline", True

    def begin() -> None:
        deadline.start()
        threading.Thread(target=_stop, args=(stop, first), name="twophase-stop", daemon=True).start()

    threading.Thread(target=_read_signals, args=(reading, begin), name="twophase-signals", daemon=True).start()
    pipe_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(pipe_before)
        deadline.cancel()
        os.close(writing)


def _read_signals(pipe: int, begin: Callable[[], None]) -> None:
    """Until the end of the context closes the other end."""
    asked = False
    with os.fdopen(pipe, "rb", buffering=0) as signals:
        while number := signals.read(1):
            if number[0] not in _SIGNALS:
                continue
            if asked:
                _exit_at_once(_EXIT_CODE_BASE + number[0])
            asked = True
            begin()


def _stop(stop: Callable[[], None], first: Callable[[], None]) -> None:
    try:
        first()
        stop()
    except Exception:  # noqa: BLE001 the job ends by itself when Spark is gone, and reports why
        _log.debug("The job could not be stopped", exc_info=True)


def _give_up(hangs: Callable[[str], None], deadline_s: float) -> None:
    try:
        hangs(
            f"The job did not stop within {deadline_s:g} s, and is ended at once. No data is lost: the next start commits what "
            "is decided and aborts the rest."
        )
    finally:
        _exit_at_once(1)


def _exit_at_once(code: int) -> None:
    if os.isatty(_STANDARD_ERROR):
        os.write(_STANDARD_ERROR, _SHOW_CURSOR)
    os._exit(code)
