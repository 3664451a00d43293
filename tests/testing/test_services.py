"""Local services: real servers that start, die and come back."""

from __future__ import annotations

import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pymysql
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from twophase.errors import ServiceError
from twophase.testing.containers import MariaDbContainer
from twophase.testing.services import (
    KafkaService,
    MariaDbService,
    MySqlService,
    ServiceNotOwnedError,
    local_server,
    mariadb,
    ports,
)
from twophase.testing.services.kafka import BOOTSTRAP_VARIABLE
from twophase.testing.services.ports import free_ports

pytestmark = [pytest.mark.server, pytest.mark.part("services")]

SqlKind = type[MySqlService] | type[MariaDbService]

SERVER_OF_A_DYING_TEST = """
import os, signal, sys, threading
from twophase.testing.services import MariaDbService
service = MariaDbService(own=True, detached=sys.argv[1] == "detached")
starter = threading.Thread(target=service.start)  # the thread that started it ends first
starter.start()
starter.join()
print(service.pid, service.log, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaService]:
    with KafkaService(own=True) as service:
        yield service


@pytest.fixture(
    scope="module", params=[MySqlService, pytest.param(MariaDbService, marks=pytest.mark.proof)]
)
def kind(request: pytest.FixtureRequest) -> SqlKind:
    chosen: SqlKind = request.param
    return chosen


@pytest.fixture(scope="module")
def sql(kind: SqlKind) -> Iterator[MySqlService | MariaDbService]:
    with kind(
        own=True, local_infile=True, server_options=["--innodb-lock-wait-timeout=7"]
    ) as service:
        service.create_database("shop")
        yield service


def test_kafka_keeps_its_records_and_port_through_a_kill(kafka: KafkaService) -> None:
    create_topic(kafka, "orders")
    send(kafka, "orders", [b"one", b"two"])
    before, pid = kafka.bootstrap_servers, kafka.pid
    kafka.kill()
    assert not psutil.pid_exists(pid)
    kafka.restart()
    assert kafka.bootstrap_servers == before
    assert records(kafka, "orders") == [b"one", b"two"]


def test_kafka_makes_no_topic_by_itself(kafka: KafkaService) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, max_block_ms=500)
    with pytest.raises(Exception, match=r"(?i)metadata|topic|timeout"):
        producer.send("never-made", b"x").get(timeout=5)
    producer.close()
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    assert "never-made" not in admin.list_topics()
    admin.close()


@pytest.mark.proof
def test_a_transaction_of_kafka_survives_a_restart_in_order(kafka: KafkaService) -> None:
    create_topic(kafka, "transactional")
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("transactional", b"committed")
    producer.commit_transaction()
    producer.close()
    kafka.restart()
    # it is decided; its marker may be written after the restart
    while not (found := records(kafka, "transactional")):
        pass
    assert found == [b"committed"]


def test_a_prepared_branch_survives_a_kill(sql: MySqlService | MariaDbService) -> None:
    with sql.connect("shop") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO orders VALUES (1)")
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
    with sql.connect("shop") as connection, connection.cursor() as cursor:
        cursor.execute("XA RECOVER")
        assert len(cursor.fetchall()) == 1
        cursor.execute("XA COMMIT 'b1'")
        cursor.execute("SELECT id FROM orders ORDER BY id")
        assert cursor.fetchall() == ((1,), (2,))


def test_the_server_has_the_settings_that_the_protocol_needs(
    sql: MySqlService | MariaDbService,
) -> None:
    with sql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@local_infile, "
            "@@innodb_lock_wait_timeout, @@port"
        )
        assert cursor.fetchone() == (1, 0, 1, 7, sql.port)


def test_a_server_has_its_temporary_tables_to_itself(sql: MySqlService | MariaDbService) -> None:
    """One that starts deletes what it finds there: a statement of its neighbour failed by that."""
    with sql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@tmpdir, @@datadir")
        [(temporary, data)] = cursor.fetchall()
    assert Path(temporary) == Path(data).parent


def test_only_the_one_account_gets_in(sql: MySqlService | MariaDbService) -> None:
    assert len(sql.password) >= 16
    for user, password in ((sql.user, ""), ("", ""), (sql.user, "wrong")):
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            pymysql.connect(host=sql.host, port=sql.port, user=user, password=password)


def test_the_url_names_everything_but_the_password(sql: MySqlService | MariaDbService) -> None:
    assert sql.url("shop") == f"mysql://root@127.0.0.1:{sql.port}/shop"
    assert sql.password not in sql.url("shop")


def test_a_suspended_server_answers_only_after_it_is_resumed(
    sql: MySqlService | MariaDbService,
) -> None:
    with sql.connect() as connection, connection.cursor() as cursor:
        sql.suspend()
        try:
            assert psutil.Process(sql.pid).status() == psutil.STATUS_STOPPED
            with pytest.raises(pymysql.err.OperationalError):
                pymysql.connect(
                    host=sql.host,
                    port=sql.port,
                    user=sql.user,
                    password=sql.password,
                    read_timeout=1,
                )
        finally:
            sql.resume()
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


@pytest.mark.proof
def test_two_servers_are_strangers_to_each_other(
    kind: SqlKind, sql: MySqlService | MariaDbService
) -> None:
    with kind(own=True) as other:
        assert other.port != sql.port
        assert other.password != sql.password
        if kind is MySqlService:
            assert server_uuid(other) != server_uuid(sql)


def test_a_stop_leaves_nothing_behind_even_when_suspended(kind: SqlKind) -> None:
    service = kind(own=True)
    service.start()
    pid, folder = service.pid, service.log.parent
    service.suspend()
    service.stop()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    service.stop()  # a second one does nothing
    with pytest.raises(ServiceError, match="not started"):
        _ = service.pid


def test_a_server_that_is_not_started_says_so(kind: SqlKind) -> None:
    for question in (
        lambda: kind(own=True).port,
        lambda: kind(own=True).kill(),
        lambda: KafkaService(own=True).bootstrap_servers,
    ):
        with pytest.raises(ServiceError, match="not started"):
            question()


def test_a_server_is_started_or_restarted_as_the_error_says(kind: SqlKind) -> None:
    service = kind(own=True)
    with pytest.raises(ServiceError) as caught:
        _ = service.port
    assert caught.value.remedy == "call start() or restart()."
    service.start()
    try:
        before = service.port
        with pytest.raises(ServiceError, match="is started already") as caught:
            service.start()
        assert caught.value.remedy == "use restart()."
        service.restart()
        assert service.port == before
        service.connect().close()
    finally:
        service.stop()


def test_no_free_port_is_found_until_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST_PORT", port)
        monkeypatch.setattr(ports, "_ephemeral_start", lambda: port + 1)
        with pytest.raises(ServiceError, match="No 1 free ports") as caught:
            free_ports(1)
        assert caught.value.remedy == "end processes that listen there (`ss -ltn`)."
    assert free_ports(1) == [port]


@pytest.mark.parametrize(
    "make",
    [
        lambda: KafkaService(own=True, settings={"log.segment.bytes": "no-number"}),
        lambda: MySqlService(own=True, server_options=["--no-such-option"]),
        lambda: MariaDbService(own=True, server_options=["--no-such-option"]),
    ],
)
def test_a_failed_start_names_its_log_and_shows_its_end(
    make: Callable[[], KafkaService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ServiceError, match=r"no-number|no-such-option") as caught:
        make().start()
    [log] = tmp_path.glob("*/server.log")
    assert str(log) in str(caught.value)
    whole = Path(caught.value.remedy.removeprefix("read the whole log: "))
    assert re.search("no-number|no-such-option", whole.read_text()), "it says why"
    assert [path.name for path in log.parent.iterdir()] == ["server.log"]


def test_a_server_that_ends_by_itself_keeps_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with MariaDbService(own=True) as service, service.connect() as connection:
        log = service.log
        process = psutil.Process(service.pid)
        connection.cursor().execute("SHUTDOWN")
        wait_for(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert log.exists()
    assert str(log) in caplog.text


@pytest.mark.proof
def test_a_port_that_is_taken_between_choice_and_bind_is_replaced(
    sql: MySqlService | MariaDbService, kind: SqlKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_free = free_ports
    answers = iter([[sql.port]])
    monkeypatch.setattr(
        local_server, "free_ports", lambda count: next(answers, None) or really_free(count)
    )
    with kind(own=True) as other:
        assert other.port != sql.port


@pytest.mark.proof
def test_a_broker_of_somebody_else_on_our_port_is_not_taken_for_ours(
    kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_free = free_ports
    taken = int(kafka.bootstrap_servers.partition(":")[2])
    answers = iter([[taken, really_free(1)[0]]])
    monkeypatch.setattr(
        local_server, "free_ports", lambda count: next(answers, None) or really_free(count)
    )
    with KafkaService(own=True) as other:
        assert other.bootstrap_servers != kafka.bootstrap_servers


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended is a zombie as long as its new parent
    does not ask for it.
    """
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    pid, log = start_in_a_process_that_dies("attached", tmp_path)
    wait_for(lambda: not runs(pid))
    wait_for(lambda: not (log.parent / "data").exists())


def test_a_detached_server_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    pid, log = start_in_a_process_that_dies("detached", tmp_path)
    try:
        time.sleep(1.5)  # longer than a watchdog would take
        assert "mariadbd" in psutil.Process(pid).name()
    finally:
        os.kill(pid, signal.SIGKILL)
    assert log.exists()


def test_the_environment_can_name_a_kafka_of_the_users_own(
    kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, kafka.bootstrap_servers)
    with KafkaService() as named:
        assert named.bootstrap_servers == kafka.bootstrap_servers
        for forbidden in (
            named.kill,
            named.restart,
            named.suspend,
            named.resume,
            lambda: named.pid,
        ):
            with pytest.raises(ServiceNotOwnedError, match=BOOTSTRAP_VARIABLE):
                forbidden()
    assert psutil.pid_exists(kafka.pid)


def test_the_environment_can_name_a_server_of_the_users_own(
    kind: SqlKind, sql: MySqlService | MariaDbService, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "TWOPHASE_MYSQL" if kind is MySqlService else "TWOPHASE_MARIADB"
    monkeypatch.setenv(f"{prefix}_URL", f"mysql://{sql.user}@{sql.host}:{sql.port}")
    monkeypatch.setenv(f"{prefix}_PASSWORD", sql.password)
    with kind() as named:
        assert named.url("shop") == sql.url("shop")
        with named.connect("shop") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        with pytest.raises(ServiceNotOwnedError, match=f"{prefix}_URL"):
            named.kill()
    with kind(own=True) as local:
        assert local.port != sql.port


@pytest.mark.parametrize(
    "url", ["root@127.0.0.1", "mysql://127.0.0.1/shop", "mysql://root:secret@127.0.0.1"]
)
def test_a_wrong_url_in_the_environment_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOPHASE_MYSQL_URL", url)
    with pytest.raises(ServiceError, match="TWOPHASE_MYSQL_PASSWORD") as caught:
        MySqlService()
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("TWOPHASE_MYSQL_URL", "mysql://root@127.0.0.1:3306")
    monkeypatch.setenv("TWOPHASE_MYSQL_PASSWORD", "secret")
    assert MySqlService().password == "secret"


def test_a_server_of_the_users_own_that_does_not_answer_is_named(
    kind: SqlKind, sql: MySqlService | MariaDbService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be named again when it does, or a local one is started without it."""
    prefix = "TWOPHASE_MYSQL" if kind is MySqlService else "TWOPHASE_MARIADB"
    [unused] = free_ports(1)
    monkeypatch.setenv(f"{prefix}_URL", f"mysql://root@127.0.0.1:{unused}")
    monkeypatch.setenv(f"{prefix}_PASSWORD", sql.password)
    with pytest.raises(ServiceError, match=f"{prefix}_URL does not answer") as caught:
        kind().start()
    assert f"or unset {prefix}_URL to have a local one started" in caught.value.remedy
    monkeypatch.setenv(f"{prefix}_URL", f"mysql://root@127.0.0.1:{sql.port}")
    kind().start()
    monkeypatch.delenv(f"{prefix}_URL")
    with kind() as local:
        assert local.port != sql.port


def assert_answers(service: MySqlService | MariaDbService) -> None:
    with service as named, named.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_where_mysql_cannot_be_fetched_one_of_ones_own_is_named(
    kind: SqlKind,
    sql: MySqlService | MariaDbService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the client a MariaDB is one as well."""
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ServiceError, match="is for Linux x86-64") as caught:
        MySqlService(own=True).start()
    assert caught.value.remedy.startswith("name a MySQL of your own in TWOPHASE_MYSQL_URL (and")
    monkeypatch.setenv("TWOPHASE_MYSQL_URL", f"mysql://{sql.user}@{sql.host}:{sql.port}")
    monkeypatch.setenv("TWOPHASE_MYSQL_PASSWORD", sql.password)
    assert_answers(MySqlService())


def test_where_mariadb_cannot_be_fetched_one_of_ones_own_is_named(
    sql: MySqlService | MariaDbService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the client a MySQL is one as well."""
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(ServiceError, match="none could be fetched") as caught:
            mariadb.fetch_packages(tmp_path)
    assert caught.value.remedy.endswith("or name one of your own in TWOPHASE_MARIADB_URL.")
    monkeypatch.setenv("TWOPHASE_MARIADB_URL", f"mysql://{sql.user}@{sql.host}:{sql.port}")
    monkeypatch.setenv("TWOPHASE_MARIADB_PASSWORD", sql.password)
    assert_answers(MariaDbService())


def test_without_a_docker_engine_the_local_servers_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(ServiceError, match="No Docker engine answers") as caught:
        MariaDbContainer().start()
    assert "twophase.testing.services needs none" in caught.value.remedy
    with MariaDbService(own=True) as service:
        service.connect().close()


def create_topic(kafka: KafkaService, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
    admin.close()


def send(kafka: KafkaService, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for value in values:
        producer.send(topic, value).get(timeout=10)
    producer.close()


def records(kafka: KafkaService, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed"
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    values: list[bytes] = []
    while consumer.position(partition) < end:
        values += [record.value for batch in consumer.poll(1_000).values() for record in batch]
    consumer.close()
    return values


def server_uuid(service: MySqlService | MariaDbService) -> str:
    with service.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@server_uuid")
        [[uuid]] = cursor.fetchall()
        return str(uuid)


def start_in_a_process_that_dies(mode: str, folder: Path) -> tuple[int, Path]:
    command = [sys.executable, "-c", SERVER_OF_A_DYING_TEST, mode]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, log = done.stdout.split(maxsplit=1)
    return int(pid), Path(log.strip())


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "gave up waiting"
        time.sleep(0.02)
