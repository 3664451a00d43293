"""The table that the demo writes into, looked at from outside."""

from __future__ import annotations

from typing import Any

from integration import checker
from twophase.testing.services import MySqlService

DATABASE = "shop"
TABLE = "orders"
_COLUMNS = "id BIGINT, customer VARCHAR(64), amount DOUBLE, kafka_partition INT, kafka_offset BIGINT"


class Target:
    """A table without a unique key: a row that is written twice is there twice.

    Args:
        mysql: the server, started.
    """

    def __init__(self, mysql: MySqlService) -> None:
        self._mysql = mysql
        mysql.create_database(DATABASE)
        self._sql(f"CREATE TABLE {TABLE} ({_COLUMNS}) ENGINE = InnoDB")

    @property
    def url(self) -> str:
        """As the sink wants it."""
        return self._mysql.url(DATABASE)

    def visible(self) -> int:
        """Rows that any reader sees."""
        return int(self._sql(f"SELECT COUNT(*) FROM {TABLE}")[0][0])

    def prepared(self) -> int:
        """Transactions that are prepared: durable, invisible, and waiting for one word."""
        return len(self._sql("XA RECOVER"))

    def compare(self, servers: str, topic: str) -> checker.Verdict:
        """Hold the whole table against the whole topic."""
        with self._mysql.connect(DATABASE) as connection:
            return checker.check(servers, topic, connection, TABLE)

    def _sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self._mysql.connect(DATABASE) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
