"""The three tables of one job as others see them, without Spark and without any
code of the product.

MySQL by plain SQL, Delta by the files that its log names, Hive by the files in the
folder of the table. With a version of PySpark that has no Delta there are two.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymysql

from harness import checker, delta_lake, order_files, workload
from twophase import spark_versions

MYSQL, DELTA, HIVE = "facts", "lake", "hive"
SINKS = (MYSQL, DELTA, HIVE) if spark_versions.DELTA.is_here else (MYSQL, HIVE)
"""The names of the sinks, in the order of the job."""
PARTITION = "kafka_partition"


class Targets:
    """The tables of one job; their name is that of the job.

    Args:
        job: its name.
        connection: MySQL's arguments for pymysql.
        lake: the folder with the Delta tables.
        warehouse: the folder with the Hive tables.
    """

    def __init__(
        self, job: str, connection: Mapping[str, Any], lake: Path, warehouse: Path
    ) -> None:
        self.job = job
        self.delta = lake / job
        self.hive = warehouse / job
        self._connection = connection

    def make_table(self) -> None:
        """Create the one in MySQL, without a unique key, so that a duplicate shows. The sinks
        create the others.
        """
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {self.job} ({workload.COLUMNS}) ENGINE = InnoDB")

    def insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Write rows into MySQL, visible at once."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {self.job} VALUES (%s, %s, %s, %s, %s)", rows)

    def orders(self, sink: str) -> checker.Records:
        """Yield every row of a table, for the checker."""
        if sink == DELTA:
            return delta_lake.orders(self.delta)
        if sink == HIVE:
            return order_files.orders(self.hive)
        with self.connect() as connection:
            return checker.read_table(connection, self.job)

    def rows(self, *sinks: str) -> dict[str, int]:
        """Return how many rows the tables show; a table that does not exist yet shows none."""
        return {sink: self._count(sink) for sink in sinks or SINKS}

    def staged(self) -> dict[str, int]:
        """Return data files, of the sinks that write files, that are written and that
        no reader sees yet.
        """
        hive = [
            file for piece in order_files.staged(self.hive) for file in Path(piece).glob("[0-9]*")
        ]
        return {DELTA: len(delta_lake.unnamed_files(self.delta)), HIVE: len(hive)}

    def left(self) -> list[str]:
        """Return all uncommitted files beside the tables on disk."""
        beside = [
            str(path)
            for path in (self.delta / "_twophase").rglob("*")
            if path.suffix in (".intent", ".manifest", ".aborted")
        ]
        return [
            *beside,
            *sorted(delta_lake.unnamed_files(self.delta)),
            *order_files.staged(self.hive),
        ]

    def connect(self) -> pymysql.connections.Connection[Any]:
        """Connect to MySQL."""
        return pymysql.connect(**self._connection, autocommit=True)

    def _count(self, sink: str) -> int:
        if sink == DELTA:
            return delta_lake.count(self.delta)
        if sink == HIVE:
            return order_files.parquet_rows(self.hive)
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {self.job}")
            return int(cursor.fetchone()[0])
