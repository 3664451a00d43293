"""Real servers for the integration tests, started once for each process that runs tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pymysql
import pytest

from twophase.sources.kafka.engines import close_clusters
from twophase.testing.services import KafkaService, MariaDbService, MySqlService, SqlService

FREE_TIMEOUT_S = 60


@pytest.fixture(scope="module", autouse=True)
def connections_end_with_the_module() -> Iterator[None]:
    """The threads of those left open would call stopped brokers, and draw random numbers that other tests rely on."""
    yield
    close_clusters()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaService]:
    with KafkaService() as service:
        yield service


@pytest.fixture(scope="session")
def mysql_of_session() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True) as service:
        yield service


@pytest.fixture(scope="module")
def mysql(mysql_of_session: MySqlService) -> Iterator[MySqlService]:
    """Tests may leave transactions prepared; the tests of the next module count them."""
    yield mysql_of_session
    roll_back_prepared(mysql_of_session)


@pytest.fixture(scope="session")
def own_mysql() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True, own=True) as service:
        yield service


@pytest.fixture(scope="session")
def own_mariadb() -> Iterator[MariaDbService]:
    with MariaDbService(local_infile=True, own=True) as service:
        yield service


@pytest.fixture(scope="module")
def mariadb(own_mariadb: MariaDbService) -> Iterator[MariaDbService]:
    """As `mysql`; tests may kill it, and have to bring it back."""
    yield own_mariadb
    roll_back_prepared(own_mariadb)


@pytest.fixture(scope="module", params=["own_mysql", "own_mariadb"], ids=["mysql", "mariadb"])
def sql_server(request: pytest.FixtureRequest) -> Iterator[MySqlService | MariaDbService]:
    """Each kind of server in turn; tests may kill it, and have to bring it back."""
    service = request.getfixturevalue(request.param)
    yield service
    roll_back_prepared(service)


def roll_back_prepared(server: SqlService) -> None:
    """Leave no transaction prepared on a server; one that a killed session has just left takes a moment to be free."""
    deadline = time.monotonic() + FREE_TIMEOUT_S
    with server.connect() as connection, connection.cursor() as cursor:
        while cursor.execute("XA RECOVER CONVERT XID"):
            assert time.monotonic() < deadline, "transactions stay prepared whose sessions do not end"
            for format_id, gtrid_length, bqual_length, data in cursor.fetchall():
                digits = str(data)[2:]
                gtrid, bqual = digits[: 2 * gtrid_length], digits[2 * gtrid_length : 2 * (gtrid_length + bqual_length)]
                with contextlib.suppress(pymysql.err.OperationalError):
                    cursor.execute(f"XA ROLLBACK X'{gtrid}', X'{bqual}', {format_id}")
