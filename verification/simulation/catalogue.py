"""What a simulated server says of itself: version, settings, tables. What the sink asks
when it is opened.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from twophase.sinks.mysql.lock_conflicts import REFERRING_KEYS, UNIQUE_KEYS
from verification.simulation.dialects import Dialect

Rows = list[tuple[Any, ...]]

_ALTERED = (
    "SELECT CREATE_TIME, CREATE_TIME <= NOW() - INTERVAL %s SECOND"
    " FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_TABLES = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
_ENGINES = (
    "SELECT DISTINCT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
    "AND TABLE_NAME IN %s"
)
_IDENTITY = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, CREATE_TIME FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_TARGET = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_COLUMNS = (
    "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, "
    "COLLATION_NAME, CHARACTER_MAXIMUM_LENGTH,"
    " NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
_UNIQUE = (
    "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s "
    "AND TABLE_NAME = %s AND NON_UNIQUE = 0"
    " ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
)
_TRIGGERS = (
    "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, ACTION_TIMING, ACTION_STATEMENT"
    " FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s"
    " AND EVENT_OBJECT_TABLE = %s AND EVENT_MANIPULATION = 'INSERT'"
)
_LOCKING = re.compile(r" UNION ALL SELECT NULL(, NULL){3} FROM `shop`\.`\w+` WHERE FALSE")
_FOREIGN = (
    "SELECT COUNT(*) FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND CONSTRAINT_TYPE = 'FOREIGN KEY'"
)
_CREATE = "CREATE TABLE IF NOT EXISTS `shop`.`"


class Catalogue:
    """Answers questions about the server.

    Args:
        dialect: which server it is.
        name: its host name, which makes its id.
        keyed: whether the targets have a primary key.
        local_infile: whether LOAD DATA LOCAL is allowed.
    """

    def __init__(self, dialect: Dialect, name: str, *, keyed: bool, local_infile: bool) -> None:
        self._dialect = dialect
        self._keyed = keyed
        self._metadata: dict[str, None] = {}
        self._created: Counter[str] = Counter()
        self._name = name
        self._lives = 0
        self._variables = {
            "innodb_flush_log_at_trx_commit": "1",
            "log_bin": "OFF",
            "local_infile": "ON" if local_infile else "OFF",
            "max_connections": "151",
            "max_allowed_packet": "16777216",
        }
        if not dialect.is_mariadb:
            self._variables["server_uuid"] = f"uuid-of-{name}"
        self._answers: dict[str, Callable[[Sequence[Any]], Rows]] = {
            "SELECT VERSION()": lambda _: [(dialect.version,)],
            "SELECT CURRENT_ROLE()": lambda _: [("NONE",)],
            "SHOW GRANTS FOR CURRENT_USER()": lambda _: [("GRANT TRIGGER ON *.* TO `app`@`%`",)],
            "SELECT @@server_uuid": lambda _: [(self._variables["server_uuid"],)],
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN %s": lambda asked: [
                (key, value) for key, value in self._variables.items() if key in asked[0]
            ],
            _TABLES: lambda _: [(table,) for table in self._metadata],
            _ENGINES: lambda _: [("InnoDB",)],
            _IDENTITY: lambda asked: [
                (asked[0], asked[1], f"2026-01-01 00:00:{self._created[asked[1]]:02d}")
            ],
            # the server was restarted since: that an older one ends in XA COMMIT is not simulated
            "SHOW GLOBAL STATUS LIKE 'Uptime'": lambda _: [("Uptime", "0")],
            _ALTERED: lambda asked: [(f"2026-01-01 00:00:{self._created[asked[2]]:02d}", 1)],
            _TARGET: lambda asked: [(asked[0], asked[1], "BASE TABLE", "InnoDB")],
            _COLUMNS: lambda _: [
                (column, "bigint", "bigint(20)", "NO", None, "", None, None, 19, 0, None)
                for column in ("checkpoint", "id")
            ],
            _UNIQUE: lambda _: [("PRIMARY", "id")] * self._keyed,
            _TRIGGERS: lambda _: [],
            _FOREIGN: lambda _: [(0,)],
            UNIQUE_KEYS: lambda _: [],
            REFERRING_KEYS: lambda _: [],
        }

    def become_another(self) -> None:
        """Another server takes the place of this one, under its name."""
        self._lives += 1
        if not self._dialect.is_mariadb:
            self._variables["server_uuid"] = f"uuid-of-{self._name}-{self._lives}"

    def recreate(self, table: str) -> None:
        """DROP TABLE and CREATE TABLE: made at another time."""
        self._created[table] += 1

    def answer(self, sql: str, arguments: Sequence[Any]) -> Rows | None:
        """The rows; None if it is another statement."""
        if sql.startswith(_CREATE):
            self._metadata[sql.removeprefix(_CREATE).partition("`")[0]] = None
            return []
        if sql.startswith("SHOW CREATE TABLE `shop`.`"):
            return [(b"", b"CREATE TABLE")]
        if sql.startswith("EXPLAIN INSERT INTO `shop`.`"):
            return []
        answer = self._answers.get(_LOCKING.sub("", sql))
        return None if answer is None else answer(arguments)
