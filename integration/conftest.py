"""Real servers for the integration tests, started once for each process that runs tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.branches import roll_back_branches
from harness.kafka_cluster import KafkaCluster
from harness.metastore_server import MetastoreService
from integration.kafka.topics import Topics
from twophase.kafka_client.client import BrokerClient
from twophase.kafka_client.connection import CLIENT_ID
from twophase.sources.kafka.engines import close_clusters
from twophase.testing.services import KafkaService, MariaDbService, MySqlService
from twophase.testing.services.iceberg_rest import IcebergRestService


@pytest.fixture(scope="module", autouse=True)
def connections_end_with_the_module() -> Iterator[None]:
    """The threads of those left open would call stopped brokers, log that, and draw random numbers
    that other tests rely on.
    """
    begin, begun = BrokerClient.__init__, []

    def remembered(client: BrokerClient, *given: Any, **named: Any) -> None:
        begun.append(client)
        begin(client, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerClient, "__init__", remembered)
        yield
    close_clusters()
    for client in begun:
        client.close()
    left = [one for one in threading.enumerate() if one.name == f"kafka-io-{CLIENT_ID}"]
    assert not left, "clients of kafka-python that only the end of the process would close"


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaService]:
    with KafkaService() as service:
        yield service


@pytest.fixture(scope="session")
def own_kafka() -> Iterator[KafkaService]:
    """A broker of this process: tests may kill it, and have to bring it back."""
    with KafkaService(own=True) as service:
        yield service


@pytest.fixture(scope="module")
def cluster_of_module() -> Iterator[KafkaCluster]:
    """Three brokers, for files that kill them: too many to keep for the session."""
    with KafkaCluster() as started:
        yield started


@pytest.fixture
def cluster(cluster_of_module: KafkaCluster) -> Iterator[KafkaCluster]:
    """The brokers of this file; a test leaves all of them behind, and all replicas in sync."""
    yield cluster_of_module
    cluster_of_module.restart_all_killed()


@pytest.fixture(scope="module")
def topics(kafka: KafkaService) -> Iterator[Topics]:
    with Topics(kafka.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="session")
def mysql_of_session() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True) as service:
        yield service


@pytest.fixture(scope="module")
def mysql(mysql_of_session: MySqlService) -> Iterator[MySqlService]:
    """Tests may leave transactions prepared; the tests of the next module count them."""
    yield mysql_of_session
    roll_back_branches(mysql_of_session)


@pytest.fixture(scope="session")
def own_mysql() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True, own=True) as service:
        yield service


@pytest.fixture(scope="session")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders in which servers make tables, by the kind of their catalogs."""
    folder = tmp_path_factory.mktemp("warehouses")
    for kind in ("hive", "rest"):
        (folder / kind).mkdir()
    return folder


@pytest.fixture(scope="session")
def rest_server(warehouses: Path) -> Iterator[IcebergRestService]:
    with IcebergRestService(warehouses / "rest") as service:
        yield service


@pytest.fixture(scope="session")
def metastore(warehouses: Path) -> Iterator[MetastoreService]:
    with MetastoreService(warehouses / "hive") as service:
        yield service


@pytest.fixture(scope="session")
def own_mariadb() -> Iterator[MariaDbService]:
    with MariaDbService(local_infile=True, own=True) as service:
        yield service


@pytest.fixture(scope="module")
def mariadb(own_mariadb: MariaDbService) -> Iterator[MariaDbService]:
    """As `mysql`; tests may kill it, and have to bring it back."""
    yield own_mariadb
    roll_back_branches(own_mariadb)


@pytest.fixture(scope="module", params=["own_mysql", "own_mariadb"], ids=["mysql", "mariadb"])
def sql_server(request: pytest.FixtureRequest) -> Iterator[MySqlService | MariaDbService]:
    """Each kind of server in turn; tests may kill it, and have to bring it back."""
    yield from _own_server(request)


@pytest.fixture(
    scope="module",
    params=["own_mysql", pytest.param("own_mariadb", marks=pytest.mark.proof)],
    ids=["mysql", "mariadb"],
)
def sql_server_in_proof(request: pytest.FixtureRequest) -> Iterator[MySqlService | MariaDbService]:
    """The same; MariaDB in `make proof` only."""
    yield from _own_server(request)


def _own_server(request: pytest.FixtureRequest) -> Iterator[MySqlService | MariaDbService]:
    service = request.getfixturevalue(request.param)
    yield service
    roll_back_branches(service)
