"""The same step in every sink: one after the other, or side by side.

Sinks do not know each other, and what recovery asks of one waits for a server, a file system or a catalogue: three of them
cost the time of the slowest. Each sink's own calls stay in their order, in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from twophase.coordinator.commit_queue import Spawn
from twophase.events import Event, Observers

T = TypeVar("T")
Step = Callable[[Observers], T]
"""What is done in one sink; the observers hear of it."""


class FanOut(Protocol):
    """Takes one step in every sink."""

    def __call__(self, steps: Mapping[str, Step[T]], observers: Observers) -> dict[str, T]:
        """Take the steps.

        Args:
            steps: by the name of the sink, in the order of the job.
            observers: hear of every step, in that order.

        Returns:
            What each step returned, in that order.

        Raises:
            BaseException: of the steps that failed, what the first in that order raised.
        """


def sequentially(steps: Mapping[str, Step[T]], observers: Observers) -> dict[str, T]:
    """One after the other. After a failure no other sink is asked."""
    return {name: step(observers) for name, step in steps.items()}


class SideBySide:
    """Each in a thread of its own. Returns or raises when all are back, also after a failure.

    Args:
        thread: makes a thread that will run a function; unstarted.
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
    """One step in its thread: what it told, and what became of it."""

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
