"""Handles SIGINT and SIGTERM: the first stops the job cleanly, the second ends the process.

Ending at once is safe: recovery at the next start does what the driver could no longer do.

Before there is a job, nothing is there to stop: `first_signals` keeps the signal while this module
is still being imported, and from then on it interrupts the main thread. Afterwards a separate
thread reads signals from a wakeup pipe, since a Python handler would run only in the main thread,
which may be in the middle of a long call to Spark or to a target.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from twophase.cli.first_signals import EXIT_CODE_BASE, SIGNALS

_SHOW_CURSOR = b"\x1b[?25h\n"  # a live panel hides it
_STANDARD_ERROR = 2
_DEADLINE_S = 60.0
"""Deadline of a clean stop. systemd waits for 90 s before it kills, so its log
still gets our message.
"""

_log = logging.getLogger("twophase")


class InterruptedStart(KeyboardInterrupt):
    """A signal has come before there was a job.

    No KeyboardInterrupt itself: if one ends an `exec`, as imports run it, Python kills itself with
    SIGINT at its end, although it was caught.
    """


class StopSignals:
    """Both signals, from the first moment of a command on. Used in the main thread.

    Until there is a job to stop, the first signal interrupts the main thread: it raises
    InterruptedStart there, and nothing of the job has begun. From `stop_with` on it stops the job.

    Args:
        hangs: given the reason why the process ends with code 1, if the context does not end in
            time after a signal.
        deadline_s: that time, in seconds.

    Attributes:
        first: called in a thread of its own at the first signal, to inform the user.
        hangs: as given.
        interrupted: whether a signal has interrupted the main thread. What is raised then may be
            another error: a library that is torn in the middle of its import cannot be imported.
    """

    def __init__(self, hangs: Callable[[str], None], deadline_s: float = _DEADLINE_S) -> None:
        self.first: Callable[[], None] = lambda: None
        self.hangs = hangs
        self.interrupted = False
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self._asked = False

    def stop_with(self, stop: Callable[[], object]) -> None:
        """Stop a job at the first signal.

        Args:
            stop: ends the job; called once, in its own thread.

        Raises:
            InterruptedStart: the signal has come already.
        """
        with self._lock:
            self._stop = stop
            asked = self._asked
        if asked:
            raise InterruptedStart

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise InterruptedStart for any error that an interruption has become in the context."""
        try:
            yield
        except Exception as error:
            if self.interrupted:
                raise InterruptedStart from error
            raise

    @contextmanager
    def handled(self) -> Iterator[Self]:
        """Handle the signals inside the context."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        deadline = threading.Timer(self._deadline_s, self._give_up)
        deadline.name, deadline.daemon = "twophase-deadline", True
        _start_thread("twophase-signals", self._read, reading, deadline)
        before = {number: signal.signal(number, self._interrupt) for number in SIGNALS}
        # Afterwards: a signal that was kept, and is sent once more, would count as a second one.
        pipe_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(pipe_before)
            deadline.cancel()
            os.close(writing)

    def _interrupt(self, *_: object) -> None:
        if self._stop is None:
            logging.disable()  # py4j reports the call that this tears
            self.interrupted = True
            raise InterruptedStart

    def _read(self, pipe: int, deadline: threading.Timer) -> None:
        """Read signals until the end of the context closes the other end of the pipe."""
        with os.fdopen(pipe, "rb", buffering=0) as signals:
            while number := signals.read(1):
                if number[0] not in SIGNALS:
                    continue
                with self._lock:
                    again, self._asked = self._asked, True
                    stop = self._stop or (lambda: None)
                if again:
                    _exit_at_once(EXIT_CODE_BASE + number[0])
                deadline.start()
                _start_thread("twophase-stop", _stop, stop, self.first)

    def _give_up(self) -> None:
        try:
            self.hangs(
                f"The job did not stop within {self._deadline_s:g} s: ending the process now. No "
                "data is lost: the next start commits decided checkpoints and aborts the rest."
            )
        finally:
            _exit_at_once(1)


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Keep the handlers of both signals: a SparkContext sets one, which calls Spark at any time."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_thread(name: str, target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, name=name, daemon=True).start()


def _stop(stop: Callable[[], object], first: Callable[[], None]) -> None:
    try:
        first()
        stop()
    except Exception:  # noqa: BLE001 the job ends by itself when Spark is gone, and reports why
        _log.debug("The job could not be stopped", exc_info=True)


def _exit_at_once(code: int) -> None:
    if os.isatty(_STANDARD_ERROR):
        with suppress(OSError):  # a terminal that has gone
            os.write(_STANDARD_ERROR, _SHOW_CURSOR)
    os._exit(code)
