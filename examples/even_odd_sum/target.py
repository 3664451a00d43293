"""The tables that the runs write into, read from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twophase.testing.services import MySqlService

_DATABASE = "sums"
_COLUMNS = "parity VARCHAR(4), added BIGINT, total BIGINT"


@dataclass(frozen=True)
class Sums:
    """A table's rows and sums for one parity.

    Attributes:
        rows: the number of rows.
        added: the increments of all checkpoints: the sum that a reader of the table gets.
        total: the newest sum of Spark's keyed state.
    """

    rows: int
    added: int
    total: int


class Target:
    """A database whose tables have no unique key: a row that is written twice appears twice.

    Args:
        mysql: the server, started.
    """

    def __init__(self, mysql: MySqlService) -> None:
        self._mysql = mysql
        mysql.create_database(_DATABASE)

    @property
    def url(self) -> str:
        """The URL for the sink."""
        return self._mysql.url(_DATABASE)

    def create(self, table: str) -> None:
        """Create an empty table."""
        self._sql(f"CREATE TABLE {table} ({_COLUMNS}) ENGINE = InnoDB")

    def rows(self, table: str) -> int:
        """Return the number of rows that any reader sees."""
        return int(self._sql(f"SELECT COUNT(*) FROM {table}")[0][0])

    def sums(self, table: str) -> dict[str, Sums]:
        """Return the sums by parity."""
        found = self._sql(
            f"SELECT parity, COUNT(*), SUM(added), MAX(total) FROM {table} GROUP BY parity"
        )
        return {parity: Sums(rows, int(added), total) for parity, rows, added, total in found}

    def _sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self._mysql.connect(_DATABASE) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
