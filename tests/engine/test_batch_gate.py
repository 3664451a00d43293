"""The gate before each micro-batch: once it is closed, no other one begins."""

from __future__ import annotations

import threading

import pytest

from twophase.engine.batch_gate import BatchGate, GateClosedError


def test_micro_batches_pass_until_it_is_closed() -> None:
    gate = BatchGate()
    for number in (0, 1):
        with gate.batch(number):
            assert gate.number == number
    gate.close()
    with pytest.raises(GateClosedError), gate.batch(2):
        pytest.fail("it began")
    assert gate.number is None


def test_the_one_under_way_is_waited_for() -> None:
    gate, inside, go_on = BatchGate(), threading.Event(), threading.Event()

    def run() -> None:
        with gate.batch(7):
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=run)
    thread.start()
    inside.wait()
    gate.close()
    seen: list[int] = []

    def is_past(number: int) -> bool:
        seen.append(number)
        return len(seen) == 3

    gate.wait_until(is_past)
    assert seen == [7, 7, 7]
    assert [gate.number] == [7]
    threading.Timer(0, go_on.set).start()
    gate.wait_until_free()
    assert gate.number is None
    thread.join()


def fails(gate: BatchGate) -> None:
    with gate.batch(0):
        raise ValueError("no")


def test_a_failed_one_has_left() -> None:
    gate = BatchGate()
    with pytest.raises(ValueError, match="no"):
        fails(gate)
    gate.wait_until_free()
    assert gate.number is None
