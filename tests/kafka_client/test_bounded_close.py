"""A consumer that does not end when it is closed holds up nobody."""

from __future__ import annotations

import threading

import pytest

from twophase.kafka_client import bounded_close


class Consumer:
    """Closes once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.closed = threading.Event()

    def close(self) -> None:
        self.may.wait()
        self.closed.set()


def test_one_that_ends_is_closed_when_the_call_returns(caplog: pytest.LogCaptureFixture) -> None:
    consumer = Consumer()
    consumer.may.set()
    with bounded_close.closing_in_time(consumer) as given:
        assert given is consumer
    assert consumer.closed.is_set()
    assert caplog.text == ""


def test_one_that_does_not_is_left_behind_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded_close, "PATIENCE_S", 0.01)
    consumer = Consumer()
    bounded_close.close(consumer)
    assert not consumer.closed.is_set()
    assert "left behind with its threads" in caplog.text
    consumer.may.set()
    consumer.closed.wait()


def test_a_failure_is_raised() -> None:
    class Failing:
        def close(self) -> None:
            raise RuntimeError("closed already")

    with pytest.raises(RuntimeError, match="closed already"):
        bounded_close.close(Failing())
