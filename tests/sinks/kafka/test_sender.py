"""What the sink asks of librdkafka, which checks settings against one another."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.sender import Sender


@pytest.mark.parametrize("transaction", ["10 s", "15 min"])
@pytest.mark.parametrize("request_timeout", ["1 s", "30 s", "5 min"])
def test_every_transaction_timeout_goes_with_every_request_timeout(
    transaction: str, request_timeout: str
) -> None:
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "orders",
        "transaction_timeout": transaction,
        "request.timeout": request_timeout,
    }
    options = KafkaSinkOptions.parse(given)
    timeout_ms = int(1000 * options.transaction_timeout_s)
    Sender(options, {"transactional.id": "one", "transaction.timeout.ms": timeout_ms}).drop()


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_client_ends_with_the_last_who_holds_its_sender() -> None:
    options = KafkaSinkOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"})
    before = threads_of_librdkafka()
    sender = Sender(options, {})
    assert threads_of_librdkafka() > before
    del sender
    assert threads_of_librdkafka() == before


def threads_of_librdkafka() -> int:
    names = (task.read_text() for task in Path("/proc/self/task").glob("*/comm"))
    return sum(name.startswith("rdk:") for name in names)
