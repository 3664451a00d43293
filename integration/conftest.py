"""Real servers for the integration tests, started once for each module that asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from twophase.sources.kafka.engines import close_clusters
from twophase.testing.services import KafkaService, MariaDbService, MySqlService


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=30, help="How often each database server is killed under load.")


@pytest.fixture(scope="module", autouse=True)
def connections_end_with_the_module() -> Iterator[None]:
    """The threads of those left open would call stopped brokers, and draw random numbers that other tests rely on."""
    yield
    close_clusters()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaService]:
    with KafkaService() as service:
        yield service


@pytest.fixture(scope="module")
def mysql() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True) as service:
        yield service


@pytest.fixture(scope="module", params=[MySqlService, MariaDbService], ids=["mysql", "mariadb"])
def sql_server(request: pytest.FixtureRequest) -> Iterator[MySqlService | MariaDbService]:
    """Each kind of server in turn; tests may kill it, and have to bring it back."""
    with request.param(local_infile=True, own=True) as service:
        yield service
