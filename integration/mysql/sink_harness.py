"""What the tests of the MySQL sink share: a database on a real server, a table
in it, sinks for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pymysql

from harness.branches import branches
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.ids import Attempt, Subtask
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.sinks.mysql.sink import MySqlSink
from twophase.sinks.mysql.writer import MySqlWriter
from twophase.testing.harness import FIRST, JOB, SINK, Row, SinkHarness, fresh_name, transaction_id
from twophase.testing.services import MariaDbService, MySqlService

Server = MySqlService | MariaDbService

DDL = "id BIGINT PRIMARY KEY, name VARCHAR(5000), amount DOUBLE"
TASK = Subtask(0, 0)
TABLES = ("target", "twophase_fence", "twophase_ledger", "twophase_high_water", "twophase_rewind")
"""A table of ids and its metadata tables."""

_DEADLINE_S = 30.0
_CACHED_S = 0.1
"""For which InnoDB keeps what it lists."""


class MySqlHarness(SinkHarness):
    """One table in a database of its own.

    Args:
        server: where.
        ddl: the table's columns.
        schema: the rows' columns.
        options: the sink's options.
    """

    def __init__(
        self, server: Server, ddl: str = DDL, schema: pa.Schema | None = None, **options: Any
    ) -> None:
        self.server = server
        self._ddl = ddl
        self.has_key = "PRIMARY KEY" in ddl
        self.database = fresh_name("t")
        self.fields = schema or self.schema
        self.options = options
        self._of_others = {*branches(server)}
        self._variable = f"TWOPHASE_TEST_PASSWORD_{server.port}"
        os.environ[self._variable] = server.password
        server.create_database(self.database)
        self.sql(f"CREATE TABLE target ({ddl}) ENGINE = InnoDB")

    def new_sink(self, **options: Any) -> MySqlSink:
        given = {
            "url": self.server.url(self.database),
            "table": "target",
            "password_env": self._variable,
        }
        return MySqlSink(
            **{
                **given,
                "lock_wait_timeout": "1 s",
                "fence_timeout": "10 s",
                **self.options,
                **options,
            }
        )

    def branches(self) -> list[str]:
        """The prepared branches, but for those that others have left on the server."""
        return [xid for xid in branches(self.server) if xid not in self._of_others]

    def unreachable(self) -> MySqlSink:
        return self.new_sink(url=f"mysql://root@127.0.0.1:1/{self.database}")

    def rows_of_extremes(self) -> list[Row]:
        """MariaDB stores -0.0 as 0.0."""
        rows, is_mysql = super().rows_of_extremes(), isinstance(self.server, MySqlService)
        return [row for row in rows if is_mysql or repr(row["amount"]) != "-0.0"]

    def elsewhere(self) -> MySqlHarness:
        return MySqlHarness(self.server, self._ddl, self.fields, **self.options)

    def opened(self, **options: Any) -> OpenMySqlSink:
        """A sink that is open and fenced for the first attempt."""
        sink = self.new_sink(**options).open(self.context())
        sink.fence(FIRST)
        return sink

    def context(self, **changes: Any) -> SinkContext:
        return SinkContext(
            **{"job": JOB, "sink": SINK, "schema": self.fields, "parallelism": 4, **changes}
        )

    def sql(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Run a statement as the server's administrator."""
        with (
            closing(self.server.connect(self.database)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())

    def end_sessions(self, user: str | None = None) -> None:
        """The server ends all sessions of an account, as a restart or a proxy does."""
        with closing(self.server.connect()) as admin, admin.cursor() as cursor:
            cursor.execute(
                "SELECT ID FROM information_schema.PROCESSLIST"
                " WHERE USER = %s AND ID <> CONNECTION_ID()",
                (user or self.server.user,),
            )
            for (number,) in cursor.fetchall():
                with suppress(pymysql.Error):  # it has gone by itself
                    cursor.execute(f"KILL {number}")

    def end_open_transactions(self) -> None:
        """End the sessions that have had one open for a while, as somebody does who finds them,
        until none is left.
        """
        asleep = (
            "SELECT ID, TIME FROM information_schema.INNODB_TRX"
            " JOIN information_schema.PROCESSLIST ON ID = trx_mysql_thread_id"
            " WHERE COMMAND = 'Sleep' AND trx_rows_locked + trx_rows_modified > 0"
        )
        ended = set[int]()
        deadline_s = time.monotonic() + _DEADLINE_S
        while (listed := self.sql(asleep)) or not ended:
            assert time.monotonic() < deadline_s, listed
            for number in [one for one, seconds in listed if seconds > 0 and one not in ended]:
                self.sql(f"KILL {number}")
                ended.add(number)
            time.sleep(_CACHED_S)

    def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every table with its rows; prepared branches are in none."""
        names = sorted(name for (name,) in self.sql("SHOW TABLES"))
        return {name: sorted(self.sql(f"SELECT * FROM `{name}`"), key=repr) for name in names}

    def rows_visible(self) -> list[Row]:
        with closing(self.server.connect(self.database)) as connection:
            with connection.cursor(pymysql.cursors.DictCursor) as cursor:
                cursor.execute("SELECT * FROM target")
                return list(cursor.fetchall())

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows_visible())

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(list(rows), schema=self.fields)

    def write(
        self,
        sink: OpenMySqlSink,
        rows: Sequence[Row],
        checkpoint: int = 0,
        attempt: Attempt = FIRST,
        subtask: Subtask = TASK,
    ) -> Committable:
        """Pre-commit rows as one task."""
        writer = sink.writers()(transaction_id(checkpoint, attempt), subtask)
        try:
            writer.write(self.batch(rows))
            committable = writer.pre_commit()
        except BaseException:
            writer.abort()
            raise
        assert committable is not None
        return committable

    def begun(
        self, sink: OpenMySqlSink, ids: Iterable[int], subtask: Subtask = TASK
    ) -> MySqlWriter:
        """A writer with rows in its open branch."""
        writer = sink.writers()(transaction_id(), subtask)
        writer.write(self.batch(self.rows(ids)))
        writer._flush()
        return writer


def commit(
    sink: OpenMySqlSink, *committables: Committable, retries: int = 0
) -> list[CommitOutcome]:
    return list(sink.commit([CommitRequest(committable, retries) for committable in committables]))


def xid_sql(committable: Committable) -> str:
    """The branch as the XA statements take it."""
    return f"'{committable.handle['gtrid']}','{committable.handle['bqual']}',{0x74777068}"


def remade(target: MySqlHarness, *statements: str) -> None:
    """Run DDL until the server's clock, which counts seconds, shows that the table is
    another or a rebuilt one, and has left that second: a branch of the same one counts as older.
    """
    before = created(target)
    while created(target) == before:
        for statement in statements:
            target.sql(statement)
    for (made,) in created(target):
        while target.sql("SELECT NOW() <= %s", made) == [(1,)]:
            continue


def created(target: MySqlHarness) -> list[tuple[object, ...]]:
    return target.sql(
        "SELECT CREATE_TIME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
        "AND TABLE_NAME = 'target'",
        target.database,
    )
