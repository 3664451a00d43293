"""Commits concurrently with the next micro-batch, in one thread, in the order of decisions.

Used only with `checkpoint.max_concurrent` above 1. A single thread keeps commits in order: a sink
may take its high-water mark as proof of everything below (I4).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Thread(Protocol):
    """The part of `threading.Thread` that is used."""

    def start(self) -> None:
        """Begin."""

    def join(self) -> None:
        """Wait for its end."""


Spawn = Callable[[Callable[[], None]], Thread]
"""Creates an unstarted thread that will run a function."""


def plain_thread(run: Callable[[], None]) -> threading.Thread:
    """Create a thread that does not keep the process alive."""
    return threading.Thread(target=run, name="twophase-commit", daemon=True)


class CommitQueue:
    """A queue of decided checkpoints, and the thread that finishes them.

    Args:
        spawn: creates the thread, on the first `submit`.
        on_failure: called by the thread when it has failed, to end other waits.

    Attributes:
        failure: the error that ended the thread; decided but uncommitted checkpoints are left to
            the next recovery.
    """

    def __init__(self, spawn: Spawn, on_failure: Callable[[], None]) -> None:
        self.failure: BaseException | None = None
        self._spawn = spawn
        self._on_failure = on_failure
        self._left: deque[Callable[[], bool]] = deque()
        self._changed = threading.Condition()
        self._thread: Thread | None = None
        self._closing = False
        self._gave_up = False

    def submit(self, finish: Callable[[], bool]) -> None:
        """Queue one more checkpoint; `finish` returns False if the job stops before it commits."""
        with self._changed:
            self._left.append(finish)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = self._spawn(self._run)
                self._thread.start()

    def wait(self, at_most: int) -> bool:
        """Wait until at most `at_most` checkpoints are left.

        Returns:
            False if the job is stopping and no more of them will be committed.

        Raises:
            BaseException: the error that ended the thread.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._left) <= at_most or self._gave_up or self.failure is not None
            )
            if self.failure is not None:
                raise self.failure
            return len(self._left) <= at_most

    def close(self) -> None:
        """Finish the queued checkpoints, unless the job stops first, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while finish := self._next():
                done = finish()
                with self._changed:
                    if done:
                        self._left.popleft()
                    else:
                        self._gave_up = True
                    self._changed.notify_all()
                if not done:
                    return
        except BaseException as error:  # noqa: BLE001 kept for the waiting threads, and for the job
            with self._changed:
                self.failure = error
                self._changed.notify_all()
            self._on_failure()

    def _next(self) -> Callable[[], bool] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._closing)
            return self._left[0] if self._left else None
