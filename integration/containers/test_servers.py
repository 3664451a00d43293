"""Servers in containers: they start, die, freeze and come back, and leave nothing behind."""

from __future__ import annotations

import docker
import psutil
import pymysql
import pytest
from docker.errors import NotFound
from kafka import KafkaConsumer, TopicPartition

from harness import workload
from twophase.errors import ServiceError
from twophase.testing.containers import (
    KafkaContainer,
    MariaDbContainer,
    MySqlContainer,
    SqlContainer,
)
from twophase.testing.containers.sql import MARIADB_IMAGE_VARIABLE
from twophase.testing.services.ports import LOOPBACK

pytestmark = pytest.mark.usefixtures("docker_engine")

TOPIC = "letters"


@pytest.fixture(params=["mysql_container", "mariadb_container"])
def sql(request: pytest.FixtureRequest) -> SqlContainer:
    container: SqlContainer = request.getfixturevalue(request.param)
    return container


def records(kafka: KafkaContainer) -> list[bytes]:
    partition = TopicPartition(TOPIC, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    )
    try:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes] = []
        while consumer.position(partition) < end:
            found += [
                record.value
                for batch in consumer.poll(timeout_ms=5_000).values()
                for record in batch
            ]
        return found
    finally:
        consumer.close()


def listening_on(port: int) -> set[str]:
    addresses = [c.laddr for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return {address.ip for address in addresses if address and address.port == port}


def test_kafka_keeps_its_records_and_port_through_a_kill(kafka_container: KafkaContainer) -> None:
    kafka = kafka_container
    workload.create_topic(kafka.bootstrap_servers, TOPIC, partitions=1)
    for value in (b"one", b"two"):
        workload.send(kafka.bootstrap_servers, TOPIC, value, partition=0)
    before = kafka.bootstrap_servers
    kafka.kill()
    assert kafka.pid == 0
    kafka.restart()
    assert kafka.bootstrap_servers == before
    assert records(kafka) == [b"one", b"two"]


def test_a_prepared_branch_survives_a_kill(sql: SqlContainer) -> None:
    sql.create_database("branches")
    with sql.connect("branches") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
        for statement in (
            "XA START 'b1'",
            "INSERT INTO orders VALUES (2)",
            "XA END 'b1'",
            "XA PREPARE 'b1'",
        ):
            cursor.execute(statement)
        port = sql.port
        sql.kill()
    sql.restart()
    assert sql.port == port
    with sql.connect("branches") as connection, connection.cursor() as cursor:
        cursor.execute("XA RECOVER")
        assert len(cursor.fetchall()) == 1
        cursor.execute("XA COMMIT 'b1'")
        cursor.execute("SELECT id FROM orders")
        assert cursor.fetchall() == ((2,),)


def test_the_server_has_the_settings_that_the_protocol_needs(sql: SqlContainer) -> None:
    with sql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@local_infile")
        assert cursor.fetchone() == (1, 0, 1)


def test_a_wrong_password_is_refused(sql: SqlContainer) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="1045"):
        pymysql.connect(host=sql.host, port=sql.port, user=sql.user, password="wrong")


def test_only_this_machine_reaches_it(sql: SqlContainer) -> None:
    if sql.host != LOOPBACK:
        pytest.skip("the engine is on another machine")
    assert listening_on(sql.port) == {LOOPBACK}


def test_a_frozen_server_answers_nothing_until_it_goes_on(sql: SqlContainer) -> None:
    connection = pymysql.connect(
        host=sql.host, port=sql.port, user=sql.user, password=sql.password, read_timeout=1
    )
    sql.suspend()
    try:
        with (
            connection.cursor() as cursor,
            pytest.raises(pymysql.err.OperationalError, match="timed out"),
        ):
            cursor.execute("SELECT 1")
    finally:
        sql.resume()
    with sql.connect() as other, other.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_a_frozen_server_can_be_started_again(mariadb_container: MariaDbContainer) -> None:
    mariadb_container.suspend()
    mariadb_container.restart()
    with mariadb_container.connect() as connection:
        connection.ping(reconnect=False)


def test_a_container_is_gone_after_its_block() -> None:
    engine = docker.from_env()
    before = {container.id for container in engine.containers.list(all=True)}
    with MariaDbContainer() as container:
        folder = container.log.parent
        [made] = {container.id for container in engine.containers.list(all=True)} - before
    with pytest.raises(NotFound):
        engine.containers.get(made)
    assert not folder.exists()
    with pytest.raises(ServiceError, match="MariaDB is not started"):
        container.kill()


def test_a_server_that_ends_while_starting_shows_its_log() -> None:
    with pytest.raises(ServiceError, match=r"(?s)ended with exit code.*no-such-option") as caught:
        MySqlContainer(server_options=["--no-such-option=1"]).start()
    assert "MySQL" in str(caught.value)


def test_an_image_that_cannot_be_had_is_named_and_another_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(MARIADB_IMAGE_VARIABLE, f"{LOOPBACK}:1/nowhere:1")  # nothing listens there
        with pytest.raises(ServiceError, match=r"(?s)127\.0\.0\.1:1/nowhere:1") as caught:
            MariaDbContainer().start()
    assert f"name another one in {MARIADB_IMAGE_VARIABLE};" in caught.value.remedy
    with MariaDbContainer() as container:
        container.connect().close()
