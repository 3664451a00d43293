"""The same step in every sink, one after the other or side by side: what is reported, returned and
raised is in their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from twophase.coordinator.commit.fan_out import FanOut, SideBySide, Step, sequentially
from twophase.events import Event, Observers, OrphansAborted


def plain(run: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=run, daemon=True)


def orphan(sink: str) -> OrphansAborted:
    return OrphansAborted("job", sink, ("piece",))


def telling(name: str, observers: Observers) -> str:
    observers(orphan(name))
    return f"result of {name}"


def last_first(names: list[str]) -> dict[str, Step[str]]:
    """Steps that can only end in the reverse order, and only if all of them run at once."""
    ended = {name: threading.Event() for name in names}

    def step(name: str, waits_for: threading.Event | None, observers: Observers) -> str:
        if waits_for is not None:
            assert waits_for.wait(60)
        observers(orphan(name))
        ended[name].set()
        return f"result of {name}"

    later = [*names[1:], None]
    return {
        name: partial(step, name, ended[follower] if follower else None)
        for name, follower in zip(names, later, strict=True)
    }


def failing(error: BaseException, ended: list[str], name: str, observers: Observers) -> str:
    observers(orphan(name))
    ended.append(name)
    raise error


def test_side_by_side_they_run_at_once_and_tell_in_their_order() -> None:
    reported: list[Event] = []
    results = SideBySide(plain)(last_first(["a", "b", "c"]), Observers(reported.append))
    assert list(results.items()) == [(name, f"result of {name}") for name in "abc"]
    assert reported == [orphan(name) for name in "abc"]


@pytest.mark.parametrize(
    "fan_out", [sequentially, SideBySide(plain)], ids=["in turn", "side by side"]
)
def test_the_first_error_in_their_order_is_raised(fan_out: FanOut) -> None:
    ended: list[str] = []
    steps: dict[str, Step[str]] = {
        "a": partial(telling, "a"),
        "b": partial(failing, OSError("of b"), ended, "b"),
        "c": partial(failing, OSError("of c"), ended, "c"),
    }
    reported: list[Event] = []
    with pytest.raises(OSError, match="of b"):
        fan_out(steps, Observers(reported.append))
    assert reported[:2] == [orphan("a"), orphan("b")]


class Awaited(threading.Thread):
    """A thread that ends only when somebody waits for it."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.awaited = threading.Event()
        self._run_then = run

    def run(self) -> None:
        assert self.awaited.wait(60)
        self._run_then()

    def join(self, timeout: float | None = None) -> None:
        self.awaited.set()
        super().join(timeout)


def test_side_by_side_an_error_waits_until_the_others_are_back() -> None:
    """Whoever handles it may close the sinks."""
    threads: list[Awaited] = []

    def thread(run: Callable[[], None]) -> Awaited:
        threads.append(Awaited(run))
        return threads[-1]

    steps: dict[str, Step[str]] = {
        "a": partial(failing, KeyboardInterrupt(), [], "a"),
        "b": partial(telling, "b"),
    }
    with pytest.raises(KeyboardInterrupt):
        SideBySide(thread)(steps, Observers())
    assert [thread.is_alive() for thread in threads] == [False, False]


def test_in_turn_no_other_sink_is_asked_after_an_error() -> None:
    ended: list[str] = []
    steps: dict[str, Step[str]] = {
        "a": partial(failing, OSError("of a"), ended, "a"),
        "b": partial(failing, OSError("of b"), ended, "b"),
    }
    with pytest.raises(OSError, match="of a"):
        sequentially(steps, Observers())
    assert ended == ["a"]


def test_one_sink_needs_no_thread() -> None:
    def no_thread(run: Callable[[], None]) -> threading.Thread:
        raise AssertionError("a thread for one sink")

    assert SideBySide(no_thread)({"a": partial(telling, "a")}, Observers()) == {"a": "result of a"}
