"""A broker that lets nobody in without a login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.kafka.secure_broker import SecureKafka, secure_kafka
from integration.kafka.topics import Topics


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure")) as started:
        yield started


@pytest.fixture(scope="module")
def plain(broker: SecureKafka) -> Iterator[Topics]:
    """Topics of that broker, by the listener that asks for no login."""
    with Topics(broker.plain) as topics:
        yield topics
