"""Real servers for the integration tests, started once for each module that asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twophase.testing.services import KafkaService, MySqlService


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaService]:
    with KafkaService() as service:
        yield service


@pytest.fixture(scope="module")
def mysql() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True) as service:
        yield service
