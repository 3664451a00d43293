"""What the tests of the MySQL sink share: a database on a real server, a table in it, sinks for it."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import pyarrow as pa
import pymysql

from sinks.mysql.sink import MySqlSink
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.protocol.committable import Committable
from twophase.protocol.sink import SinkContext
from twophase.testing.harness import FIRST, JOB, SINK, Row, SinkHarness, fresh_name, transaction_id
from twophase.testing.services import MariaDbService, MySqlService

Server = MySqlService | MariaDbService

DDL = "id BIGINT PRIMARY KEY, name VARCHAR(100), amount DOUBLE"


class MySqlHarness(SinkHarness):
    """One table in a database of its own."""

    def __init__(self, server: Server, ddl: str = DDL, schema: pa.Schema | None = None, **options: Any) -> None:
        self.server = server
        self.database = fresh_name("t")
        self.fields = schema or self.schema
        self.options = options
        self._variable = f"TWOPHASE_TEST_PASSWORD_{server.port}"
        os.environ[self._variable] = server.password
        server.create_database(self.database)
        self.sql(f"CREATE TABLE target ({ddl}) ENGINE = InnoDB")

    def new_sink(self, **options: Any) -> MySqlSink:
        given = {"url": self.server.url(self.database), "table": "target", "password_env": self._variable}
        return MySqlSink(**{**given, "lock_wait_timeout": "1 s", "fence_timeout": "10 s", **self.options, **options})

    def opened(self, **options: Any) -> MySqlSink:
        """A sink that is open and fenced for the first attempt."""
        sink = self.new_sink(**options)
        sink.open(self.context())
        sink.fence(FIRST)
        return sink

    def context(self, **changes: Any) -> SinkContext:
        return SinkContext(**{"job": JOB, "sink": SINK, "schema": self.fields, "parallelism": 4, **changes})

    def connect(self) -> pymysql.Connection:
        return self.server.connect(self.database)

    def sql(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())

    def rows_visible(self) -> list[Row]:
        with closing(self.connect()) as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SELECT * FROM target")
            return list(cursor.fetchall())

    def write(
        self,
        sink: MySqlSink,
        rows: list[Row],
        checkpoint: int = 0,
        attempt: Attempt = FIRST,
        subtask: Subtask = Subtask(0, 0),  # noqa: B008 - a value
        transaction: TransactionId | None = None,
    ) -> Committable:
        """Pre-commit rows as one task."""
        writer = sink.writer(transaction or transaction_id(checkpoint, attempt), subtask)
        try:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=self.fields))
            committable = writer.pre_commit()
        except BaseException:
            writer.abort()
            raise
        assert committable is not None
        return committable
