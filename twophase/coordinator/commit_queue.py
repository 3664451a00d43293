"""Commits behind the next micro-batch: one thread finishes what is decided, in the order of the decisions.

Only with `checkpoint.max_concurrent` above 1. One thread, so that a checkpoint is committed after all before it: a sink may
take its high-water mark for proof of everything below (I4).
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
"""Makes a thread that will run a function; unstarted."""


def plain_thread(run: Callable[[], None]) -> threading.Thread:
    """A thread that does not keep the process alive."""
    return threading.Thread(target=run, name="twophase-commit", daemon=True)


class CommitQueue:
    """A queue of decided checkpoints, and the thread that finishes them.

    Args:
        spawn: makes the thread, when there is something to do for the first time.
        on_failure: called by the thread when it has failed, to end who may be waiting for something else.

    Attributes:
        failure: what ended the thread; whatever is decided and not committed then is left to the next recovery.
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
        """Let the thread finish one more checkpoint; `finish` says whether it is committed, or the job stops first."""
        with self._changed:
            self._left.append(finish)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = self._spawn(self._run)
                self._thread.start()

    def wait(self, at_most: int) -> bool:
        """Wait until at most so many checkpoints are left.

        Returns:
            False if the job is stopping and they will not become fewer.

        Raises:
            BaseException: what ended the thread.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._left) <= at_most or self._gave_up or self.failure is not None)
            if self.failure is not None:
                raise self.failure
            return len(self._left) <= at_most

    def close(self) -> None:
        """Finish what is left, unless the job is stopping before that, and end the thread."""
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
        except BaseException as error:  # noqa: BLE001 kept for those who wait, and for the job
            with self._changed:
                self.failure = error
                self._changed.notify_all()
            self._on_failure()

    def _next(self) -> Callable[[], bool] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._closing)
            return self._left[0] if self._left else None
