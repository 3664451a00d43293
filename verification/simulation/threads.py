"""What the product takes from `threading` and `time`, for tasks that take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from verification.simulation.scheduler import Process, Scheduler, Task


class SimulatedClock:
    """Stands for `twophase.internals.clock.SystemClock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic_s(self) -> float:
        return self._scheduler.now_s

    def unix_ms(self) -> int:
        return int(self._scheduler.now_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return self._scheduler.wait_until(event.is_set, self._scheduler.now_s + timeout_s)


class Lock:
    """Stands for `threading.Lock` and `threading.RLock`."""

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
            self.wait()

    def wait(self, timeout_s: float | None = None) -> None:
        scheduler, depth, seen = self._scheduler, self._depth, self._notified
        self._owner, self._depth = None, 0
        deadline_s = None if timeout_s is None else scheduler.now_s + timeout_s
        scheduler.wait_until(lambda: self._notified != seen and self._owner is None, deadline_s)
        scheduler.wait_until(lambda: self._owner is None, None)
        self._owner, self._depth = scheduler.current, depth


class Event:
    """Stands for `threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout_s: float | None = None) -> bool:
        deadline_s = None if timeout_s is None else self._scheduler.now_s + timeout_s
        return self._scheduler.wait_until(self.is_set, deadline_s)


class Thread:
    """Stands for `threading.Thread`; it dies with its process.

    Args:
        process: whose it is.
        name: for the trace.
        run: what it does.

    Attributes:
        name: as given.
    """

    def __init__(
        self, scheduler: Scheduler, process: Process, name: str, run: Callable[[], None]
    ) -> None:
        self.name = name
        self._scheduler = scheduler
        self._process = process
        self._run = run
        self._task: Task | None = None

    @property
    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def start(self) -> None:
        self._task = self._scheduler.spawn(self._process, self.name, self._run)

    def join(self) -> None:
        self._scheduler.wait_until(lambda: not self.is_alive, None)


class ByProcess(MutableMapping[str, str]):
    """Stands for a dictionary of a module: each process has its own."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._of: dict[Process, dict[str, str]] = {}

    def __getitem__(self, key: str) -> str:
        return self._mine[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._mine[key] = value

    def __delitem__(self, key: str) -> None:
        del self._mine[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mine)

    def __len__(self) -> int:
        return len(self._mine)

    @property
    def _mine(self) -> dict[str, str]:
        return self._of.setdefault(self._scheduler.current.process, {})


class CallingByTask:
    """Stands for what `twophase.events` knows of a thread, whose calls are its own: tasks share
    one.
    """

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[greenlet, tuple[str, ...]] = WeakKeyDictionary()

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that call this task back."""
        return self._of.get(getcurrent(), ())

    @jobs.setter
    def jobs(self, jobs: tuple[str, ...]) -> None:
        self._of[getcurrent()] = jobs
