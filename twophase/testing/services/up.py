"""Servers that stay up until this process is told to stop, ready for the quick start of README.md.

1. Catch SIGINT and SIGTERM first, so that servers that have started by then are stopped in order.
2. Fetch side by side what is not in the cache, start the servers, and create what the quick start
   needs: the topic `orders`, and the table `shop.orders`.
3. Print how to reach them as lines for a shell: `export` lines, everything else as comments.
4. Wait for a signal, or for a server that ends by itself.
5. Stop all of them, and remove their data.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from twophase.errors import ServiceError
from twophase.testing.services.kafka import BOOTSTRAP_VARIABLE, KafkaService
from twophase.testing.services.kafka_program import fetch_kafka
from twophase.testing.services.mariadb import MariaDbService, fetch_mariadb
from twophase.testing.services.mysql import MySqlService, fetch_mysql
from twophase.testing.services.server import end_of
from twophase.testing.services.side_by_side import Task, fetch_side_by_side
from twophase.testing.services.sql import SqlService

KAFKA = "kafka"
SQL: Mapping[str, type[SqlService]] = {"mysql": MySqlService, "mariadb": MariaDbService}
NAMES = (KAFKA, *SQL)
_FETCHERS: Mapping[str, Callable[[], object]] = {
    KAFKA: fetch_kafka,
    "mysql": fetch_mysql,
    "mariadb": fetch_mariadb,
}
_DEFAULT_SQL = "mysql"

_TOPIC, _PARTITIONS = "orders", 2
_DATABASE, _TABLE = "shop", "orders"
_ROWS = f"SELECT * FROM {_TABLE}"  # noqa: S608 a constant
_COLUMNS = (
    "id BIGINT, customer VARCHAR(64), amount DOUBLE, kafka_partition INT, kafka_offset BIGINT"
)
_PASSWORD_VARIABLE = "SHOP_PASSWORD"  # noqa: S105 a name


class _Stopped(BaseException):
    """A signal has asked for the servers to stop."""


def run(names: Sequence[str]) -> None:
    """Keep servers up until a signal comes.

    Args:
        names: the servers, from `NAMES`.

    Raises:
        ServiceError: one could not be fetched or started, or ended by itself.
    """
    try:
        with _signals_stop(), ExitStack() as stack:
            fetch_side_by_side([[Task(name, _FETCHERS[name])] for name in dict.fromkeys(names)])
            pids: dict[int, KafkaService | SqlService] = {}
            for name in dict.fromkeys(names):
                service = _start(name, stack)
                pids[service.pid] = service
            _say_what_to_do(names)
            _wait_for_an_end(pids)
    except _Stopped:
        click.echo("# Stopped, and their data removed.")


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Raise on the first signal; ignore later ones, which must not disturb the stop."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(*_: Any) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise _Stopped

    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _start(name: str, stack: ExitStack) -> KafkaService | SqlService:
    """Start one local server, whatever the environment names; print how to reach it."""
    if name == KAFKA:
        kafka = stack.enter_context(KafkaService(own=True))
        _make_topic(kafka)
        _say(
            f"# Kafka, with the empty topic {_TOPIC!r}: kafka.bootstrap.servers is "
            f"{kafka.bootstrap_servers}"
        )
        _say(f"export {BOOTSTRAP_VARIABLE}={shlex.quote(kafka.bootstrap_servers)}")
        _say(
            "#   a record: echo '{\"id\": 1}' | python -m kafka.producer -b "
            f"{kafka.bootstrap_servers} -t {_TOPIC}"
        )
        return kafka
    server = stack.enter_context(SQL[name](own=True, local_infile=True))
    _make_table(server)
    variable = f"TWOPHASE_{name.upper()}"
    _say(f"# {name}, with the empty table {_DATABASE}.{_TABLE}: url is {server.url(_DATABASE)}")
    _say(f"export {variable}_URL={shlex.quote(server.url('').rstrip('/'))}")
    _say(f"export {variable}_PASSWORD={shlex.quote(server.password)}")
    other = "" if name == _DEFAULT_SQL else f" --server {name}"
    _say(f'#   its rows: python -m twophase.testing.services sql{other} "{_ROWS}"')
    return server


def query(name: str, statement: str) -> tuple[list[str], Sequence[Sequence[object]]]:
    """Run a statement in the database of the quick start.

    Args:
        name: the server, from `SQL`; the environment names its address and password.
        statement: in SQL.

    Returns:
        The names of the columns, empty if it has no result, and the rows.

    Raises:
        ServiceError: the environment names no server.
        MySQLError: it does not answer, or refuses the statement.
    """
    account = SQL[name].external_account()
    if account is None:
        raise ServiceError(
            f"This shell has no address of a {name} server.",
            remedy="paste the lines that `python -m twophase.testing.services up` prints into it.",
        )
    with account.connect(_DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()


def _make_topic(kafka: KafkaService) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        admin.create_topics([NewTopic(_TOPIC, num_partitions=_PARTITIONS, replication_factor=1)])
    finally:
        admin.close()


def _make_table(server: SqlService) -> None:
    server.create_database(_DATABASE)
    with server.connect(_DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {_TABLE} ({_COLUMNS}) ENGINE=InnoDB")


def _say_what_to_do(names: Sequence[str]) -> None:
    first_sql = next((name for name in names if name in SQL), None)
    if first_sql is not None:
        _say(
            f'export {_PASSWORD_VARIABLE}="$TWOPHASE_{first_sql.upper()}_PASSWORD"  # '
            "password_env of the quick start"
        )
    _say(
        "# Up. Paste the lines above into another shell; "
        "Ctrl-C here stops the servers and removes their data."
    )


def _say(line: str) -> None:
    click.echo(line)


def _wait_for_an_end(pids: Mapping[int, KafkaService | SqlService]) -> None:
    """Sleep until a child of this process ends, a server or its watchdog, or a signal comes."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    service = None if ended is None else pids.get(ended.si_pid)
    if ended is None or service is None:
        raise ServiceError(
            "The watchdog of a server is gone, so all of them are stopped.",
            remedy="run this again.",
        )
    tail = "\n".join(end_of(service.log))
    raise ServiceError(
        f"{type(service).__name__} ended by itself ({ended.si_status}). The end of its log:\n{tail}"
    )
