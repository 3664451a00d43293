"""The three tables that the demo writes into, read from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness import checker
from harness.hive_settings import hive_settings
from harness.three_targets import MYSQL, SINKS, Targets
from twophase.testing.services import MySqlService

DATABASE = "shop"
TABLE = "orders"


class Target:
    """A table in MySQL, one of Delta and one of Hive; none hides a row that is written twice.

    Args:
        mysql: the server, started.
        folder: for the tables that are files.

    Attributes:
        tables: the three.
    """

    def __init__(self, mysql: MySqlService, folder: Path) -> None:
        self._mysql = mysql
        self._warehouse = folder / "warehouse"
        mysql.create_database(DATABASE)
        account = {
            "host": mysql.host,
            "port": mysql.port,
            "user": mysql.user,
            "password": mysql.password,
        }
        self.tables = Targets(
            TABLE, account | {"database": DATABASE}, folder / "lake", self._warehouse
        )
        self.tables.make_table()
        self._warehouse.mkdir()

    @property
    def url(self) -> str:
        """The URL of MySQL for the sink."""
        return self._mysql.url(DATABASE)

    def spark_conf(self) -> Mapping[str, str]:
        """Spark's settings: the warehouse in a folder, an embedded metastore, a small machine."""
        folder = self._warehouse.parent
        return {
            **hive_settings(folder, str(folder / "metastore")),
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
        }

    def visible(self) -> dict[str, int]:
        """Return the number of rows that any reader sees, by sink."""
        return self.tables.rows()

    def waiting(self) -> dict[str, int]:
        """Return what is durable, invisible and ready to commit: prepared transactions in MySQL,
        files in the others.
        """
        with self._mysql.connect(DATABASE) as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            return {MYSQL: len(cursor.fetchall()), **self.tables.staged()}

    def compare(self, servers: str, topic: str) -> dict[str, checker.Verdict]:
        """Compare each whole table with the whole topic."""
        produced = checker.read_topic(servers, topic)
        return {sink: checker.compare(produced, self.tables.orders(sink)) for sink in SINKS}
