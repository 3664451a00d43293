"""What the product takes from `threading`, for tasks that take turns: a lock, a condition, a thread
of a driver's process.
"""

from __future__ import annotations

from collections.abc import Callable

from verification.simulation.scheduler import Process, Scheduler, Task


class Lock:
    """Stands for `threading.RLock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner is not self._scheduler.current:
            self._scheduler.wait_until(lambda: self._owner is None, None)
            self._owner = self._scheduler.current
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


class Condition(Lock):
    """Stands for `threading.Condition`: who waits looks again when it is
    notified, and not before.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._notified = 0

    def notify_all(self) -> None:
        self._notified += 1

    def wait_for(self, predicate: Callable[[], object]) -> None:
        while not predicate():
            depth = self._depth
            self._owner, self._depth = None, 0
            self._await_notice()
            self._owner, self._depth = self._scheduler.current, depth

    def _await_notice(self) -> None:
        seen = self._notified
        self._scheduler.wait_until(lambda: self._notified != seen and self._owner is None, None)


class Thread:
    """Stands for `threading.Thread`; it dies with its process.

    Args:
        process: whose it is.
        run: what it does.
    """

    def __init__(self, scheduler: Scheduler, process: Process, run: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._process = process
        self._run = run
        self._task: Task

    def start(self) -> None:
        self._task = self._scheduler.spawn(
            self._process, f"{self._process.name}.commits", self._run
        )

    def join(self) -> None:
        self._scheduler.wait_until(lambda: self._task.done, None)
