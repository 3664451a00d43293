"""The same step in every sink, sequentially or in parallel.

Sinks are independent of each other, and each recovery step waits for a server, a file system or a
catalogue: in parallel, three sinks take only as long as the slowest. Each sink's own calls stay in
order, in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from twophase.coordinator.commit.commit_queue import Spawn
from twophase.events import Event, Observers

T = TypeVar("T")
Step = Callable[[Observers], T]
"""The step in one sink; it reports to the observers."""


class FanOut(Protocol):
    """Takes one step in every sink."""

    def __call__(self, steps: Mapping[str, Step[T]], observers: Observers) -> dict[str, T]:
        """Take the steps.

        Args:
            steps: by the name of the sink, in the order of the job.
            observers: receive the events of every step, in that order.

        Returns:
            The result of each step, in that order.

        Raises:
            BaseException: the error of the first failed step, in that order.
        """


def sequentially(steps: Mapping[str, Step[T]], observers: Observers) -> dict[str, T]:
    """Take the steps one after the other. A failure skips the remaining sinks."""
    return {name: step(observers) for name, step in steps.items()}


class SideBySide:
    """Takes each step in a thread of its own, and ends when all have finished or failed.

    Args:
        thread: creates an unstarted thread that will run a function.
    """

    def __init__(self, thread: Spawn) -> None:
        self._thread = thread

    def __call__(self, steps: Mapping[str, Step[T]], observers: Observers) -> dict[str, T]:
        """See `FanOut`."""
        if len(steps) < 2:
            return sequentially(steps, observers)
        taken: list[_Taken[T]] = [_Taken(step) for step in steps.values()]
        threads = [self._thread(one.run) for one in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in taken:
            for event in one.events:
                observers(event)
        for one in taken:
            if one.error is not None:
                raise one.error
        return {name: one.result() for name, one in zip(steps, taken, strict=True)}


class _Taken(Generic[T]):
    """One step in its thread: its events, and its result or error."""

    def __init__(self, step: Step[T]) -> None:
        self.events: list[Event] = []
        self.error: BaseException | None = None
        self._step = step
        self._results: list[T] = []

    def run(self) -> None:
        try:
            self._results.append(self._step(Observers(self.events.append)))
        except BaseException as error:  # noqa: BLE001 raised again by the thread that waits
            self.error = error

    def result(self) -> T:
        [result] = self._results
        return result
