"""The gate before each micro-batch: a stop with a savepoint closes it, and no other one begins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_POLL_S = 0.02


class GateClosedError(Exception):
    """The gate is closed: the micro-batch must not begin."""


class BatchGate:
    """Lets one micro-batch at a time through until it is closed. Safe to use from any thread.

    Attributes:
        number: the micro-batch under way; None if there is none.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._changed = threading.Condition()
        self._closed = False

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Run a micro-batch in the block.

        Raises:
            GateClosedError: the gate is closed, and nothing was done.
        """
        with self._changed:
            if self._closed:
                raise GateClosedError
            self.number = number
        try:
            yield
        finally:
            with self._changed:
                self.number = None
                self._changed.notify_all()

    def close(self) -> None:
        """Let no other micro-batch begin."""
        with self._changed:
            self._closed = True

    def wait_until(self, is_past: Callable[[int], bool]) -> None:
        """Wait until no micro-batch is under way, or the one that is has come to a point.

        Args:
            is_past: returns whether a micro-batch has come there.
        """
        with self._changed:
            while self.number is not None and not is_past(self.number):
                self._changed.wait(_POLL_S)

    def wait_until_free(self) -> None:
        """Wait until no micro-batch is under way."""
        self.wait_until(lambda _: False)
