"""Handles SIGINT and SIGTERM: the first stops the job cleanly, the second ends the process.

Ending at once is safe: recovery at the next start does what the driver could no longer do.

A separate thread reads signals from a wakeup pipe. A Python handler would run only in the main
thread, which may be in the middle of a long call to Spark or to a target.
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
"""Deadline of a clean stop. systemd waits for 90 s before it kills, so its log
still gets our message.
"""

_log = logging.getLogger("twophase")


@contextmanager
def stop_on_signals(
    stop: Callable[[], object],
    first: Callable[[], None],
    hangs: Callable[[str], None],
    deadline_s: float = _DEADLINE_S,
) -> Iterator[None]:
    """Handle both signals inside the context. Must be entered in the main thread.

    Args:
        stop: ends the job; called once, in its own thread.
        first: called before `stop` in the same thread, to inform the user.
        hangs: given the reason why the process ends with code 1, if the context does not end in
            time after a signal.
        deadline_s: that time, in seconds.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    deadline = threading.Timer(deadline_s, _give_up, (hangs, deadline_s))
    deadline.name, deadline.daemon = "twophase-deadline", True

    def begin() -> None:
        deadline.start()
        _start_thread("twophase-stop", _stop, stop, first)

    _start_thread("twophase-signals", _read_signals, reading, begin)
    try:
        with _signals_to(writing):
            yield
    finally:
        deadline.cancel()
        os.close(writing)


@contextmanager
def _signals_to(pipe: int) -> Iterator[None]:
    """Write the number of each signal to a pipe, instead of acting on it."""
    pipe_before = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(pipe_before)


def _start_thread(name: str, target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, name=name, daemon=True).start()


def _read_signals(pipe: int, begin: Callable[[], None]) -> None:
    """Read signals until the end of the context closes the other end of the pipe."""
    asked = False
    with os.fdopen(pipe, "rb", buffering=0) as signals:
        while number := signals.read(1):
            if number[0] not in _SIGNALS:
                continue
            if asked:
                _exit_at_once(_EXIT_CODE_BASE + number[0])
            asked = True
            begin()


def _stop(stop: Callable[[], object], first: Callable[[], None]) -> None:
    try:
        first()
        stop()
    except Exception:  # noqa: BLE001 the job ends by itself when Spark is gone, and reports why
        _log.debug("The job could not be stopped", exc_info=True)


def _give_up(hangs: Callable[[str], None], deadline_s: float) -> None:
    try:
        hangs(
            f"The job did not stop within {deadline_s:g} s: ending the process now. No data is "
            "lost: the next start commits decided checkpoints and aborts the rest."
        )
    finally:
        _exit_at_once(1)


def _exit_at_once(code: int) -> None:
    if os.isatty(_STANDARD_ERROR):
        os.write(_STANDARD_ERROR, _SHOW_CURSOR)
    os._exit(code)
