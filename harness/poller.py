"""A thread that reads again and again while its `with` block runs; the block may be
entered many times.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Self

_PAUSE_S = 0.01
_PAUSES = 2
"""The minimum pause after a look, as a multiple of its time, so that the drivers
keep their processors.
"""


class Poller(ABC):
    """Tests enter it while a driver runs: looks when nothing is killed would prove nothing.

    An error in a look is raised at the end of the `with` block.

    Attributes:
        looks_at_rest: the number of times that `look_again` was answered.
    """

    def __init__(self) -> None:
        self.looks_at_rest = 0
        self._ended = 0
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread()

    @abstractmethod
    def look(self) -> None:
        """Look once at everything."""

    def look_again(self) -> None:
        """Return once a look that began after this call has ended. For a moment when nothing
        changes, before a kill.
        """
        with self._changed:
            wanted = self._ended + 2  # the current one began earlier
            self._changed.wait_for(lambda: self._ended >= wanted or self._error is not None)
        self.looks_at_rest += 1

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="poller")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            pause_s = _PAUSE_S
            while not self._stop.wait(pause_s):
                began_s = time.monotonic()
                self.look()
                with self._changed:
                    self._ended += 1
                    self._changed.notify_all()
                pause_s = max(_PAUSE_S, _PAUSES * (time.monotonic() - began_s))
        except BaseException as error:  # noqa: BLE001 raised by the thread that waits for this one
            with self._changed:
                self._error = error
                self._changed.notify_all()
