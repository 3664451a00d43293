"""The thread that looks again and again: a look that is waited for began after it was asked for."""

from __future__ import annotations

import threading

import pytest
from typing_extensions import override

from harness.poller import Poller


class Gated(Poller):
    """Looks at a number; each look waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.seen: list[int] = []
        self.under_way = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    @override
    def look(self) -> None:
        number = self.number
        self.under_way.release()
        self.gate.acquire()
        if number < 0:
            raise ValueError("nothing to look at")
        self.seen.append(number)


def test_a_look_that_was_under_way_is_not_enough() -> None:
    poller = Gated()
    with poller:
        poller.under_way.acquire()  # it has seen 0
        poller.number = 1
        poller.gate.release(100)
        poller.look_again()
        assert poller.seen[:2] == [0, 1]
    assert poller.looks_at_rest == 1


def test_a_look_that_fails_ends_the_waiting_and_is_raised_when_the_thread_is_left() -> None:
    poller = Gated()
    poller.number = -1
    poller.gate.release(100)
    with pytest.raises(ValueError, match="nothing to look at"), poller:
        poller.look_again()
