"""A table that is altered under an open sink: no row is stored as another one.

After each change the rows either go on arriving exactly, or the attempt is declined once, and what
follows is planned by the altered table, or refused by name.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from harness.branches import roll_back_branches
from harness.held_jobs import wait_until
from harness.selection import first_of
from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed, RetryLater
from twophase.errors import (
    ConfigError,
    DeclinedError,
    PreflightError,
    RejectedRowsError,
    TargetUnreachableError,
)
from twophase.ids import Attempt, Subtask
from twophase.sinks.mysql.client.codes import LOCK_WAIT_TIMEOUT
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.testing.harness import transaction_id
from twophase.testing.services import MariaDbService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(3)]

SECOND = Attempt(1, 2)
MOMENT = datetime.datetime(2024, 5, 1, 23, 59, 59, 654_321)
EXACT, REPLANNED, REFUSED = "exact", "replanned", "refused"


@dataclass(frozen=True)
class Change:
    """A change of column `v`.

    Attributes:
        before: its definition.
        type: of the rows.
        value: that the altered column would store as another one, or that it takes.
        after: its new definition, or a whole statement.
        ends: how the rows may end.
        only: the server that knows the definition.
    """

    before: str
    type: pa.DataType
    value: Any
    after: str
    ends: str = REFUSED
    only: type | None = None

    @property
    def statement(self) -> str:
        is_whole = self.after.split(" ")[0] in ("ALTER", "CREATE")
        return self.after if is_whole else f"ALTER TABLE target MODIFY v {self.after}"


US, TEXT, BIG, REAL = pa.timestamp("us"), pa.string(), pa.int64(), pa.float64()
DAY, CLOCK = datetime.date(2024, 5, 1), datetime.time(1, 2, 3, 456_789)
NUMBER = pa.decimal128(10, 4)
CHANGES = [
    Change("DATETIME(6)", US, MOMENT, "DATETIME"),
    Change("DATETIME(6)", US, MOMENT, "DATETIME(3)"),
    Change("DATETIME(6)", US, MOMENT, "DATE"),
    Change("DATETIME(6)", US, MOMENT, "TIME(6)"),
    Change("DATETIME(6)", US, MOMENT, "VARCHAR(40)"),
    Change("DATETIME(6)", US, MOMENT, "TIMESTAMP(6) NULL", REPLANNED),
    Change("TIMESTAMP(6) NULL", US, None, "TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"),
    Change("VARCHAR(20)", TEXT, "two  ", "CHAR(20)"),
    Change("VARCHAR(20)", TEXT, "abcdef", "VARCHAR(3)"),
    Change("VARCHAR(20)", TEXT, "a", "VARBINARY(20)"),
    Change("VARCHAR(20)", TEXT, "1", "ENUM('new', 'paid')"),
    Change("VARCHAR(20)", TEXT, "b,a", "SET('a', 'b')"),
    Change("VARCHAR(20)", TEXT, "12", "INT"),
    Change("VARCHAR(20)", TEXT, "24", "YEAR"),
    Change("VARCHAR(20)", TEXT, "5", "BIT(8)"),
    Change("VARCHAR(20)", TEXT, "\u6f22", "VARCHAR(20) CHARACTER SET latin1"),
    Change("VARCHAR(20)", TEXT, "caf\u00e9", "VARCHAR(20) CHARACTER SET latin1", REPLANNED),
    Change("VARCHAR(20)", TEXT, '{"a":1,"a":2}', "JSON", only=MySqlService),
    Change("VARCHAR(20)", TEXT, '{"a":1,"a":2}', "JSON", REPLANNED, only=MariaDbService),
    Change("TEXT", TEXT, "x" * 300, "TINYTEXT"),
    Change("DOUBLE", REAL, 0.123_456_789_012, "FLOAT"),
    Change("DOUBLE", REAL, 1.25, "DOUBLE(10, 1)"),
    Change("DOUBLE", REAL, 1.25, "DECIMAL(10, 1)"),
    Change("DOUBLE", REAL, 1.25, "INT"),
    Change("DECIMAL(10, 4)", NUMBER, Decimal("1.2345"), "DECIMAL(10, 2)"),
    Change("DECIMAL(10, 4)", NUMBER, Decimal("1.2345"), "INT"),
    Change("DECIMAL(10, 4)", NUMBER, Decimal("1.2345"), "DOUBLE"),
    Change("DECIMAL(10, 4)", NUMBER, Decimal("1.2345"), "DECIMAL(20, 6)", REPLANNED),
    Change("BIGINT", BIG, 2**53 + 1, "DOUBLE"),
    Change("BIGINT", BIG, 7, "BIT(8)", REPLANNED),
    Change("BIGINT", BIG, 256, "BIT(8)"),
    Change("BIGINT", BIG, 7, "INT", REPLANNED),
    Change("ENUM('new', 'paid')", TEXT, "paid", "ENUM('paid', 'new')", REPLANNED),
    Change("ENUM('new', 'paid')", TEXT, "paid", "ENUM('new', 'Paid')"),
    Change("SET('a', 'b')", TEXT, "a,b", "SET('b', 'a')"),
    Change("BIGINT", BIG, 24, "YEAR"),
    Change("BIGINT", BIG, 7, "VARCHAR(20)"),
    Change("BIGINT", BIG, 2**40, "INT"),
    Change("BIGINT", BIG, -1, "BIGINT UNSIGNED"),
    Change("BIGINT", BIG, 7, "DECIMAL(20, 0)", REPLANNED),
    Change("BIGINT", BIG, 7, "BIGINT UNSIGNED ZEROFILL", REPLANNED),
    Change("BIGINT", BIG, None, "BIGINT NOT NULL DEFAULT 5"),
    Change("BIGINT", BIG, 0, "BIGINT NOT NULL AUTO_INCREMENT UNIQUE", REPLANNED),
    Change("BIGINT", BIG, 7, "ALTER TABLE target DROP v, ADD v BIGINT AS (1) STORED"),
    Change("BIGINT", BIG, 7, "ALTER TABLE target DROP v, ADD v BIGINT AS (1) VIRTUAL"),
    Change("BIGINT", BIG, 7, "ALTER TABLE target DROP v"),
    Change("BIGINT", BIG, 7, "ALTER TABLE target CHANGE v w BIGINT"),
    Change("BIT(1)", pa.bool_(), True, "VARCHAR(5)"),
    Change("BIT(1)", pa.bool_(), True, "BIT(9)", REPLANNED),
    Change("BIT(1)", pa.bool_(), True, "TINYINT", REPLANNED),
    Change("TINYINT", pa.bool_(), True, "BIT(1)", REPLANNED),
    Change("VARBINARY(400)", pa.binary(), b"ab", "BINARY(20)"),
    Change("VARBINARY(400)", pa.binary(), b"ab", "VARCHAR(20)"),
    Change("VARBINARY(400)", pa.binary(), bytes(300), "TINYBLOB"),
    Change("DATE", pa.date32(), DAY, "YEAR"),
    Change("DATE", pa.date32(), DAY, "INT"),
    Change("DATE", pa.date32(), DAY, "VARCHAR(20)"),
    Change("DATE", pa.date32(), DAY, "DATETIME", REPLANNED),
    Change("TIME(6)", pa.time64("us"), CLOCK, "TIME"),
    Change("TIME(6)", pa.time64("us"), CLOCK, "VARCHAR(20)"),
    Change("TIME(6)", pa.time64("us"), CLOCK, "DATETIME(6)"),
    Change("BIGINT", BIG, 7, "ALTER TABLE target ADD must INT NOT NULL"),
    Change("BIGINT", BIG, 7, "ALTER TABLE target ENGINE = MyISAM"),
    Change("BIGINT", BIG, 7, "ALTER TABLE target ADD may INT", REPLANNED),
    Change("BIGINT", BIG, 7, "ALTER TABLE target ADD UNIQUE (v)", REPLANNED),
    Change("BIGINT", BIG, 7, "ALTER TABLE target DROP PRIMARY KEY", REPLANNED),
    Change("BIGINT", BIG, 7, "ALTER TABLE target ADD INDEX (v)", EXACT),
    Change("BIGINT", BIG, 7, "ALTER TABLE target COMMENT 'of orders'", EXACT),
    Change("BIGINT", BIG, 7, "BIGINT COMMENT 'of orders'", EXACT),
    Change("BIGINT", BIG, 7, "BIGINT FIRST", EXACT),
    Change("BIGINT", BIG, 7, "CREATE TRIGGER t BEFORE INSERT ON target FOR EACH ROW SET NEW.v = 8"),
    Change(
        "BIGINT",
        BIG,
        7,
        "CREATE TRIGGER t BEFORE INSERT ON target FOR EACH ROW SET NEW.other = 8",
        REPLANNED,
    ),
    Change(
        "BIGINT",
        BIG,
        7,
        "CREATE TRIGGER t AFTER INSERT ON target FOR EACH ROW SET @seen = NEW.v",
        REPLANNED,
    ),
]


def harness_of(server: Server, change: Change, **options: Any) -> MySqlHarness:
    schema = pa.schema([("id", pa.int64()), ("v", change.type)])
    ddl = f"id BIGINT PRIMARY KEY, v {change.before}, other INT"
    return MySqlHarness(server, ddl, schema, **options)


def stored(harness: MySqlHarness, change: Change) -> Any:
    """The value as a reader with a connection of its own gets it."""
    [(value,)] = harness.sql("SELECT v FROM target")
    if isinstance(value, datetime.timedelta):
        return (datetime.datetime.combine(DAY, datetime.time()) + value).time()
    if isinstance(value, bytes) and not pa.types.is_binary(change.type):
        return int.from_bytes(value)
    if isinstance(value, datetime.datetime) and pa.types.is_date(change.type):
        assert value.time() == datetime.time()
        return value.date()
    return value


def after_change(harness: MySqlHarness, change: Change) -> tuple[str, str]:
    """Alter the table under an open sink, write a row; return how it ended, and what was said.

    A row that is committed is the one that was sent.
    """
    sink, rows = harness.opened(), [{"id": 1, "v": change.value}]
    harness.sql(change.statement)
    try:
        piece = harness.write(sink, rows)
    except DeclinedError as error:
        declined = error
    else:
        assert commit(sink, piece) == [Committed()]
        assert stored(harness, change) == change.value
        return EXACT, ""
    assert type(declined) is DeclinedError
    assert "altered while the job runs" in declined.what
    try:
        sink.fence(SECOND)
        piece = harness.write(sink, rows, attempt=SECOND)
    except (ConfigError, PreflightError, RejectedRowsError) as error:
        assert harness.sql("SELECT COUNT(*) FROM target") == [(0,)]
        return REFUSED, str(error)
    assert commit(sink, piece) == [Committed()]
    assert stored(harness, change) == change.value
    return REPLANNED, str(declined)


def known(server: Server, change: Change) -> bool:
    return change.only is None or isinstance(server, change.only)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.before} {change.after}")
def test_no_change_of_the_table_under_an_open_sink_is_silent(
    sql_server_in_proof: Server, change: Change
):
    if not known(sql_server_in_proof, change):
        pytest.skip("the other server's")
    harness = harness_of(sql_server_in_proof, change)
    ended, said = after_change(harness, change)
    assert (ended, said) == (change.ends, said)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE target MODIFY v INT",
        "CREATE TRIGGER t BEFORE INSERT ON target FOR EACH ROW SET NEW.v = 8",
        "DROP TABLE target",
    ],
)
def test_a_branch_keeps_the_table_as_it_has_found_it(sql_server: Server, statement: str) -> None:
    """From before its first row on: it has not written one here."""
    harness = harness_of(sql_server, Change("BIGINT", BIG, 7, ""))
    writer = harness.opened().writers()(transaction_id(), Subtask(0, 0))
    writer._begin()
    with closing(harness.server.connect(harness.database)) as other, other.cursor() as cursor:
        cursor.execute("SET lock_wait_timeout = 1")
        with pytest.raises(pymysql.Error, match="1205"):
            cursor.execute(statement)
        writer.abort()
        cursor.execute(statement)


def test_a_repair_opens_a_table_whatever_rows_it_takes(sql_server_in_proof: Server) -> None:
    harness = MySqlHarness(sql_server_in_proof, "id BIGINT")
    harness.sql("CREATE TRIGGER t BEFORE INSERT ON target FOR EACH ROW SET NEW.id = 8")
    harness.new_sink().open(harness.context(schema=None)).close()


@pytest.fixture
def table(own_mysql: MySqlService) -> Iterator[MySqlHarness]:
    harness = MySqlHarness(own_mysql)
    yield harness
    roll_back_branches(own_mysql)


def wait_for_the_next_second(table: MySqlHarness) -> None:
    """The server counts in seconds when a table was altered."""
    made = (
        "SELECT NOW() > MAX(CREATE_TIME) FROM information_schema.TABLES WHERE TABLE_NAME = 'target'"
    )
    wait_until(lambda: table.sql(made) == [(1,)], "the clock of the server")


def left_behind(table: MySqlHarness, statement: str, count: int = 1) -> list[Committable]:
    """A driver has died with branches, and the table was altered."""
    first = table.opened()
    pieces = [
        table.write(first, table.rows([task + 1]), subtask=Subtask(task, 0))
        for task in range(count)
    ]
    first.close()
    wait_for_the_next_second(table)
    table.sql(statement)
    return pieces


def next_driver(table: MySqlHarness) -> OpenMySqlSink:
    sink = table.new_sink().open(table.context())
    sink.history()
    return sink


def test_a_branch_whose_table_was_altered_waits_for_a_restart_and_ends_no_server(
    table: MySqlHarness,
) -> None:
    piece, other = left_behind(table, "ALTER TABLE target ADD w INT", 2)
    with closing(table.server.connect()) as witness, witness.cursor() as cursor:
        with closing(next_driver(table)) as sink:
            [outcome] = commit(sink, piece)
            assert isinstance(outcome, RetryLater)
            assert "was altered while a branch is prepared" in outcome.reason
            with pytest.raises(TargetUnreachableError, match="then restart the MySQL server"):
                sink.abort([other])
        cursor.execute("SELECT 1")
    table.server.restart()
    with closing(next_driver(table)) as sink:
        assert commit(sink, piece) == [Committed()]
        sink.abort([other])
        assert sink.in_doubt() == []
    assert table.ids() == [1]


WAITS, PASSES, RESTART = "waits", "passes", "passes, and the branch waits for a restart"
EMPTIED, NO_TABLE, ANOTHER = "the rows are gone", "there is no table", "it is another table"
EMPTIED_BY_THEN = "it is another table, and nothing was ever committed to the old one"
VIRTUAL = "ALTER TABLE target ADD w BIGINT AS (id + 1) VIRTUAL"
AGAIN = "DROP TABLE target; CREATE TABLE target (id BIGINT PRIMARY KEY, name TEXT, amount DOUBLE)"
DDL = [
    ("TRUNCATE TABLE target", EMPTIED),
    (VIRTUAL, RESTART),
    ("ALTER TABLE target ALTER amount SET DEFAULT 1", RESTART),
    ("ALTER TABLE target ADD w BIGINT AS (id + 1) STORED", WAITS),
    ("ALTER TABLE target MODIFY amount FLOAT", WAITS),
    ("ALTER TABLE target RENAME COLUMN amount TO price", WAITS),
    ("ALTER TABLE target DROP COLUMN amount", WAITS),
    ("ALTER TABLE target COMMENT 'of orders'", WAITS),
    ("CREATE INDEX by_name ON target (name(9))", WAITS),
    ("OPTIMIZE TABLE target", PASSES),
    ("CREATE TRIGGER t BEFORE INSERT ON target FOR EACH ROW SET NEW.id = NEW.id", PASSES),
    ("DROP TABLE target", NO_TABLE),
    ("RENAME TABLE target TO renamed", NO_TABLE),
    (AGAIN, ANOTHER),
    (AGAIN, EMPTIED_BY_THEN),
]


def passes(table: MySqlHarness, statement: str) -> bool:
    """Return whether DDL does not wait for a prepared branch."""
    wait_for_the_next_second(table)
    with closing(table.server.connect(table.database)) as other, other.cursor() as cursor:
        cursor.execute("SET lock_wait_timeout = 1")
        cursor.execute("SET innodb_lock_wait_timeout = 1")
        try:
            for one in statement.split("; "):
                cursor.execute(one)
        except pymysql.OperationalError as error:
            if error.args[0] != LOCK_WAIT_TIMEOUT:
                raise
            return False
    return True


@pytest.mark.parametrize(("statement", "ends"), first_of(1, DDL))
def test_what_ddl_does_to_a_branch_that_is_prepared(
    table: MySqlHarness, statement: str, ends: str
) -> None:
    if ends == ANOTHER:
        first = table.opened()
        assert commit(first, table.write(first, table.rows([5]), checkpoint=1)) == [Committed()]
        first.close()
    [piece] = left_behind(table, "SELECT 1")
    assert passes(table, statement) is (ends != WAITS)
    if ends == NO_TABLE:
        with pytest.raises(ConfigError, match="There is no table"):
            next_driver(table)
        assert len(table.branches()) == 1
        return
    with closing(table.new_sink().open(table.context())) as sink:
        assert bool(sink.history().replaced) is (ends == ANOTHER)
        if ends == ANOTHER:  # a start stops with TargetChangedError
            return
        [outcome] = commit(sink, piece)
    if ends in (RESTART, EMPTIED_BY_THEN):
        assert isinstance(outcome, RetryLater)
        table.server.restart()
        with closing(next_driver(table)) as sink:
            [outcome] = commit(sink, piece)
    assert outcome == Committed()
    assert table.ids() == ([] if ends in (EMPTIED, EMPTIED_BY_THEN) else [1])


@pytest.mark.proof
def test_on_mariadb_ddl_that_touches_the_rows_waits_for_a_branch_that_is_prepared() -> None:
    with MariaDbService(own=True) as server:
        for statement, ends in DDL:
            table = MySqlHarness(server)
            [piece] = left_behind(table, "SELECT 1")
            harmless = ends == PASSES or "SET DEFAULT" in statement
            assert passes(table, statement) is harmless, statement
            with closing(next_driver(table)) as sink:
                assert commit(sink, piece) == [Committed()]
            assert table.ids() == [1]


@pytest.mark.proof
@pytest.mark.parametrize("is_followed", [True, False])
def test_a_rollback_under_a_virtual_column_ends_the_server_unless_the_column_is_dropped_first(
    is_followed: bool,
) -> None:
    with MySqlService(own=True) as server:
        table = MySqlHarness(server)
        [piece] = left_behind(table, VIRTUAL)
        with closing(next_driver(table)) as sink:
            with pytest.raises(TargetUnreachableError) as caught:
                sink.abort([piece])
        assert caught.value.remedy == (
            "drop the VIRTUAL columns that the table has got since, then restart the MySQL server."
        )
        if is_followed:
            table.sql("ALTER TABLE target DROP COLUMN w")
        server.restart()
        with closing(next_driver(table)) as sink:
            if is_followed:
                sink.abort([piece])
                assert (table.ids(), table.branches()) == ([], [])
                return
            with pytest.raises(TargetUnreachableError):
                sink.abort([piece])
        with pytest.raises(pymysql.OperationalError):
            server.connect()
        server.kill()  # it may not even start again


@pytest.mark.proof
def test_a_server_s_own_time_zone_makes_no_branch_younger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "JST-9")
    with MySqlService(own=True) as server:
        table = MySqlHarness(server)
        [piece] = left_behind(table, "ALTER TABLE target ADD w INT")
        with closing(next_driver(table)) as sink:
            [outcome] = commit(sink, piece)
        assert isinstance(outcome, RetryLater)
        assert "was altered while a branch is prepared" in outcome.reason


def test_a_branch_whose_table_was_not_altered_is_committed(table: MySqlHarness) -> None:
    [piece] = left_behind(table, "SELECT 1")
    with closing(next_driver(table)) as sink:
        assert commit(sink, piece) == [Committed()]


def test_only_branches_that_were_there_before_wait(table: MySqlHarness) -> None:
    first = table.opened()
    assert commit(first, table.write(first, table.rows([1]))) == [Committed()]
    first.close()
    wait_for_the_next_second(table)
    table.sql("ALTER TABLE target ADD w INT")
    with closing(next_driver(table)) as second:
        second.fence(SECOND)
        piece = table.write(second, table.rows([2]), checkpoint=1, attempt=SECOND)
        assert commit(second, piece) == [Committed()]


def test_a_branch_over_another_table_holds_nobody_up(table: MySqlHarness) -> None:
    """It was there before the ALTER: another job's, or an application's that was forgotten."""
    table.sql("CREATE TABLE other (id BIGINT PRIMARY KEY)")
    with closing(table.server.connect(table.database)) as stranger, stranger.cursor() as cursor:
        for statement in (
            "XA START 'x'",
            "INSERT INTO other VALUES (1)",
            "XA END 'x'",
            "XA PREPARE 'x'",
        ):
            cursor.execute(statement)
    first = table.opened()
    wait_for_the_next_second(table)
    table.sql("ALTER TABLE target COMMENT 'of orders'")
    wait_for_the_next_second(table)
    piece = table.write(first, table.rows([1]))
    first.close()
    with closing(next_driver(table)) as sink:
        assert commit(sink, piece) == [Committed()]
