"""A SQLite database under test, as the suites of `twophase.testing.contract` ask for one."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from twophase.testing.harness import Row, SinkHarness
from twophase.testing.sqlite_sink import OpenSqliteSink, SqliteSink


class SqliteHarness(SinkHarness):
    """One table in a database of its own.

    Args:
        folder: where the database is made.
        kind: the class of the sink, declared or open.
    """

    def __init__(
        self, folder: Path, kind: type[SqliteSink] | type[OpenSqliteSink] = SqliteSink
    ) -> None:
        self.folder = folder
        self.kind = kind
        self.path = folder / f"{uuid.uuid4().hex}.db"
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER, name TEXT, amount REAL)")

    def new_sink(self) -> SqliteSink:
        """See `SinkHarness`."""
        if issubclass(self.kind, SqliteSink):
            return self.kind(self.path, "orders")
        sink = SqliteSink(self.path, "orders")
        sink.open_class = self.kind
        return sink

    def unreachable(self) -> SqliteSink:
        """See `SinkHarness`."""
        return type(self.new_sink())(self.folder / "nowhere.db", "orders")

    def rows_of_extremes(self) -> list[Row]:
        """SQLite stores -0.0 as 0.0."""
        return [row for row in super().rows_of_extremes() if repr(row["amount"]) != "-0.0"]

    def elsewhere(self) -> SqliteHarness:
        """See `SinkHarness`."""
        return SqliteHarness(self.folder, self.kind)

    def contents(self) -> list[str]:
        """See `SinkHarness`."""
        with closing(sqlite3.connect(self.path)) as connection:
            return [*connection.iterdump()]

    def rows_visible(self) -> list[Row]:
        """See `SinkHarness`."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT id, name, amount FROM orders")]
