"""Rows arrive unchanged or not at all, on real servers, by LOAD DATA and by INSERT."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from harness.selection import representatives
from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError, DeclinedError, RejectedRowsError
from twophase.ids import Attempt, Subtask
from twophase.testing.harness import transaction_id
from twophase.testing.services import MariaDbService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(2)]

WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("key16", pa.binary(16)),
        ("price", pa.decimal128(38, 18)),
        ("big", pa.uint64()),
        ("small", pa.int8()),
        ("flag", pa.bool_()),
        ("bit", pa.bool_()),
        ("ratio", pa.float64()),
        ("single", pa.float32()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("instant", pa.timestamp("us", "UTC")),
        ("clock", pa.time64("us")),
        ("document", pa.string()),
    ]
)
WIDE_DDL = """
    id BIGINT PRIMARY KEY, `text` LONGTEXT CHARACTER SET utf8mb4, `bytes` LONGBLOB, key16 BINARY(16), price DECIMAL(38,18),
    big BIGINT UNSIGNED, small TINYINT, flag BOOLEAN, `bit` BIT(1), ratio DOUBLE, `single` FLOAT, day DATE,
    moment DATETIME(6), `instant` TIMESTAMP(6) NULL, clock TIME(6), document JSON
"""  # noqa: E501
TEXTS = [
    "", " ", "  two  ", "\t", "\n", "\r\n", "\\", "\\N", "\\t", "\\\\", "'", "''", '"', "`", "\0",
    "a\0b", "\x1a", "NULL", "N", "a\tb\nc\\d", "--", "; DROP TABLE target; --", "%s", "%", "_",
    "{file}", "x'00'", "caf\u00e9", "\u6f22\u5b57", "\U0001f600", "\ufeffbom",
    "\u202eright to left", "e\u0301", "\u00e9", "a", "A", "\u00e1", "1e5", "0x41", "true",
    "2020-01-01", "x" * 255, "x" * 65_535, "x" * 65_536, "\u6f22" * 70_000, "\\" * 40_000,
    "\n" * 40_000, "'" * 40_000,
]  # fmt: skip
BYTES = [
    b"",
    b"\0",
    b"\xff",
    b"\xfb",
    b"\\N",
    b"\t\n\\",
    bytes(range(256)),
    b"\xc3\x28",
    b"x" * 100_000,
]
PRICES = [
    "0",
    "1",
    "-1",
    "0.000000000000000001",
    "-0.000000001",
    "99999999999999999999.999999999999999999",
    "123.450",
]
BIGS = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
SMALLS = [-128, -1, 0, 127]
RATIOS = [
    0.0,
    -0.0,
    0.1,
    1e308,
    -1e308,
    5e-324,
    2.2250738585072014e-308,
    1 / 3,
    1e15,
    123456789012345680.0,
    math.pi,
]
SINGLES = [0.0, 0.5, 1.5 * 2.0**120, 2.0**-126, 16777216.0, -1.25]
DAYS = [
    datetime.date(1000, 1, 1),
    datetime.date(1969, 12, 31),
    datetime.date(2020, 2, 29),
    datetime.date(9999, 12, 31),
]
MOMENTS = [
    datetime.datetime(1000, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(2024, 3, 31, 2, 30), datetime.datetime(2016, 12, 31, 23, 59, 59),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), datetime.datetime(2020, 1, 1, 0, 0, 0, 1),
]  # fmt: skip
INSTANTS = [
    datetime.datetime(1970, 1, 1, 0, 0, 1),
    datetime.datetime(2024, 10, 27, 1, 30, 0, 5),
    datetime.datetime(2038, 1, 19, 3, 14, 7),
]
CLOCKS = [datetime.time(0), datetime.time(23, 59, 59, 999999), datetime.time(1, 2, 3, 4)]
DOCUMENTS = ['{"a": 1}', "[]", "null", '"\\u00e9\\n"', '{"a": "\\\\t"}']


def corpus() -> list[dict[str, Any]]:
    utc = datetime.UTC
    columns: dict[str, Sequence[Any]] = {
        "text": TEXTS,
        "bytes": BYTES,
        "key16": [bytes(16), bytes(range(16)), b"\\\t\n" + b"x" * 13],
        "price": [decimal.Decimal(text) for text in PRICES],
        "big": BIGS,
        "small": SMALLS,
        "flag": [True, False],
        "bit": [True, False],
        "ratio": RATIOS,
        "single": SINGLES,
        "day": DAYS,
        "moment": [moment.replace(tzinfo=utc) for moment in MOMENTS],
        "instant": [moment.replace(tzinfo=utc) for moment in INSTANTS],
        "clock": CLOCKS,
        "document": DOCUMENTS,
    }
    empty = dict.fromkeys(columns)
    rows = [empty] + [
        {**empty, name: value} for name, values in columns.items() for value in values
    ]
    rows += [{name: values[n % len(values)] for name, values in columns.items()} for n in range(20)]
    return [{"id": number, **row} for number, row in enumerate(rows)]


def stored(row: dict[str, Any]) -> dict[str, Any]:
    """What a reader of the table gets for a row."""
    clock, flag, bit = row["clock"], row["flag"], row["bit"]
    return {
        **row,
        "flag": None if flag is None else int(flag),
        "bit": None if bit is None else bytes([bit]),
        "moment": row["moment"] and row["moment"].replace(tzinfo=None),
        "instant": row["instant"] and row["instant"].replace(tzinfo=None),
        "clock": None if clock is None else datetime.timedelta(
            hours=clock.hour, minutes=clock.minute, seconds=clock.second,
            microseconds=clock.microsecond
        ),
    }  # fmt: skip


def read_back(harness: MySqlHarness) -> list[dict[str, Any]]:
    """All rows, with floats as exactly as the server has them."""
    with harness.server.connect(harness.database) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        names = [field.name for field in WIDE]
        # A FLOAT is shown with six digits; the sum is a DOUBLE.
        shown = ", ".join("`single` + 0e0" if name == "single" else f"`{name}`" for name in names)
        cursor.execute(f"SELECT {shown} FROM target ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.mark.parametrize("load", ["local", "insert"])
@pytest.mark.parametrize("mode", representatives(["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"], {""}))
def test_every_value_reads_back_as_it_was(sql_server: Server, load, mode):
    before = MySqlHarness(sql_server).sql("SELECT @@GLOBAL.sql_mode")[0][0]
    harness = MySqlHarness(sql_server, WIDE_DDL, WIDE, load=load, load_rows=50)
    rows = corpus()
    harness.sql("SET GLOBAL sql_mode = %s", mode)
    try:
        sink = harness.opened()
        assert commit(sink, harness.write(sink, rows)) == [Committed()]
    finally:
        harness.sql("SET GLOBAL sql_mode = %s", before)
    found = read_back(harness)
    assert len(found) == len(rows)
    for row, got in zip(rows, found, strict=True):
        wanted = stored(row)
        for name in wanted:
            if name == "document" and wanted[name] is not None:
                assert json.loads(got[name]) == json.loads(wanted[name])
            else:
                assert got[name] == wanted[name], (name, row["id"])
        if isinstance(sql_server, MySqlService):  # MariaDB stores -0.0 as 0.0
            assert repr(got["ratio"]) == repr(wanted["ratio"])


NARROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("count", pa.int64())])
NARROW_DDL = (
    "id BIGINT PRIMARY KEY, name VARCHAR(5) NOT NULL, `count` INT UNSIGNED, fixed CHAR(3), "
    "UNIQUE KEY by_name (name)"
)
GOOD = [{"id": n, "name": f"n{n}", "count": n} for n in range(10)]


@pytest.fixture(params=representatives(["local", "insert"], {"local"}))
def narrow(request: pytest.FixtureRequest, sql_server_in_proof: Server) -> MySqlHarness:
    harness = MySqlHarness(sql_server_in_proof, NARROW_DDL, NARROW, load=request.param)
    harness.sql("INSERT INTO target (id, name, `count`) VALUES (100, 'taken', 0)")
    return harness


class TestRejected:
    @pytest.mark.parametrize(
        ("bad", "said"),
        [
            ({"id": 100, "name": "x", "count": 1}, r"(?s)Duplicate entry '100'"),
            ({"id": 3, "name": "x", "count": 1}, r"Duplicate entry '3'"),
            ({"id": 50, "name": "taken", "count": 1}, r"Duplicate entry 'taken'"),
            ({"id": 50, "name": "N3", "count": 1}, r"Duplicate entry 'N3'"),
            ({"id": 50, "name": "x", "count": 2**32}, r"column 'count' cannot store 4294967296"),
            ({"id": 50, "name": "x", "count": -1}, r"column 'count' cannot store -1"),
            ({"id": 50, "name": "toolong", "count": 1}, r"column 'name'"),
            ({"id": 50, "name": None, "count": 1}, r"column 'name' cannot store None"),
        ],
        ids=[
            "key taken",
            "key twice",
            "unique taken",
            "unique by collation",
            "clipped",
            "negative",
            "cut",
            "null",
        ],
    )
    def test_a_row_that_would_change_or_vanish_is_named_and_nothing_is_visible(
        self, narrow, bad, said
    ):
        sink = narrow.opened()
        with pytest.raises(RejectedRowsError, match=said):
            narrow.write(sink, [*GOOD, bad])
        assert narrow.ids() == [100]
        assert sink.in_doubt() == []
        sink.fence(Attempt(1, 2))
        assert commit(sink, narrow.write(sink, GOOD, attempt=Attempt(1, 2))) == [Committed()]

    @pytest.mark.parametrize("load", ["local", "insert"])
    @pytest.mark.parametrize(
        ("full", "fits", "remedy", "room"),
        [
            *(
                (
                    f"ADD n TINYINT UNIQUE AUTO_INCREMENT, AUTO_INCREMENT = {128 - fits}",
                    fits,
                    "larger type, such as BIGINT UNSIGNED",
                    "MODIFY n BIGINT UNSIGNED AUTO_INCREMENT",
                )
                for fits in (0, 1, 2)
            ),
            (
                "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (2))",
                2,
                "ADD PARTITION",
                "ADD PARTITION (PARTITION b VALUES LESS THAN MAXVALUE)",
            ),
        ],
        ids=["no number", "one number", "two numbers", "no partition"],
    )
    def test_a_table_without_room_for_a_row_has_it_after_what_the_refusal_says(
        self, sql_server_in_proof, load, full, fits, remedy, room
    ):
        """The last number is a duplicate to one server, and an error of its own to the other."""
        ids = pa.schema([("id", pa.int64())])
        harness = MySqlHarness(sql_server_in_proof, "id BIGINT PRIMARY KEY", ids, load=load)
        harness.sql(f"ALTER TABLE target {full}")
        rows = [{"id": number} for number in range(3)]
        sink = harness.opened()
        if fits:
            assert commit(sink, harness.write(sink, rows[:fits])) == [Committed()]
        with pytest.raises(DeclinedError) as caught:
            harness.write(sink, rows[fits:], checkpoint=1)
        assert remedy in caught.value.remedy
        harness.sql(f"ALTER TABLE target {room}")
        sink = harness.opened()
        assert commit(sink, harness.write(sink, rows[fits:], checkpoint=1)) == [Committed()]
        assert harness.ids() == [0, 1, 2]

    def test_the_row_itself_is_shown(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof, NARROW_DDL, NARROW)
        with pytest.raises(RejectedRowsError, match="'id': 50, 'name': 'much too long'"):
            harness.write(
                harness.opened(), [*GOOD, {"id": 50, "name": "much too long", "count": 1}]
            )

    @pytest.mark.parametrize("load", ["local", "insert"])
    def test_text_that_the_columns_character_set_lacks(self, sql_server_in_proof, load):
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        harness = MySqlHarness(
            sql_server_in_proof,
            "id BIGINT, name VARCHAR(9) CHARACTER SET latin1",
            schema,
            load=load,
        )
        sink = harness.opened()
        with pytest.raises(RejectedRowsError, match="name"):
            harness.write(sink, [{"id": 1, "name": "caf\u00e9"}, {"id": 2, "name": "\u6f22"}])
        assert harness.ids() == []

    @pytest.mark.parametrize("load", ["local", "insert"])
    def test_a_foreign_key_without_its_parent(self, sql_server_in_proof, load):
        harness = MySqlHarness(sql_server_in_proof, load=load)
        harness.sql("CREATE TABLE parent (id BIGINT PRIMARY KEY) ENGINE = InnoDB")
        harness.sql("ALTER TABLE target ADD FOREIGN KEY (id) REFERENCES parent (id)")
        harness.sql("INSERT INTO parent VALUES (0), (1)")
        sink = harness.opened()
        with pytest.raises(RejectedRowsError, match="foreign key"):
            harness.write(sink, harness.rows(range(3)))
        assert commit(sink, harness.write(sink, harness.rows(range(2)), subtask=Subtask(0, 1))) == [
            Committed()
        ]


IDS = range(2, 200)


class TestLocks:
    def test_a_key_that_another_transaction_holds_declines_the_attempt(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof)
        sink = harness.opened()
        with harness.server.connect(harness.database) as other:
            other.begin()
            other.cursor().execute("INSERT INTO target VALUES (2, '', 0)")
            with pytest.raises(DeclinedError, match=r"1205.*same keys") as caught:
                harness.write(sink, harness.rows(range(3)))
            assert not isinstance(caught.value, RejectedRowsError)
            other.rollback()
        assert commit(sink, harness.write(sink, harness.rows(range(3)), subtask=Subtask(0, 1))) == [
            Committed()
        ]
        assert harness.ids() == [0, 1, 2]

    def test_a_deadlock_declines_the_attempt(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof, lock_wait_timeout="5 s")
        sink = harness.opened()
        one, two = harness.begun(sink, [1], Subtask(0, 0)), harness.begun(sink, [2], Subtask(1, 1))

        def cross(writer, number):
            writer.write(harness.batch(harness.rows([number])))
            return writer.pre_commit()

        with ThreadPoolExecutor() as pool:
            waiting = [pool.submit(cross, one, 2), pool.submit(cross, two, 1)]
            errors = [future.exception() for future in waiting]
        assert any(isinstance(error, DeclinedError) for error in errors)
        assert harness.ids() == []
        sink.abort(sink.in_doubt())

    def test_a_deadlock_with_another_writer_is_over_when_that_one_is_kept_off(
        self, sql_server_in_proof: Server
    ) -> None:
        harness = MySqlHarness(sql_server_in_proof, lock_wait_timeout="30 s")
        sink = harness.opened()
        writer = harness.begun(sink, [1])
        with harness.server.connect(harness.database) as other, ThreadPoolExecutor(1) as pool:
            other.begin()
            cursor = other.cursor()
            # many rows: the server ends the other transaction
            cursor.execute(f"INSERT INTO target (id) VALUES {', '.join(map('({})'.format, IDS))}")
            waiting = pool.submit(cursor.execute, "INSERT INTO target (id) VALUES (1)")
            writer.write(harness.batch(harness.rows([IDS[0]])))
            with pytest.raises(DeclinedError, match="1213") as caught:
                writer.pre_commit()
            writer.abort()
            waiting.result()
            [statement] = re.findall("SHOW ENGINE INNODB STATUS", caught.value.remedy)
            assert "LATEST DETECTED DEADLOCK" in harness.sql(statement)[0][2]
            other.rollback()
            again = harness.write(sink, harness.rows([1, IDS[0]]), subtask=Subtask(0, 1))
        assert commit(sink, again) == [Committed()]

    def test_a_locked_table_declines_the_attempt(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof)
        sink = harness.opened()
        with harness.server.connect(harness.database) as other:
            other.cursor().execute("LOCK TABLES target WRITE")
            with pytest.raises(DeclinedError, match="1205"):
                harness.write(sink, harness.rows(range(3)))

    def test_a_branch_that_the_server_lost_is_not_written_on(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof)
        sink = harness.opened()
        writer = harness.begun(sink, range(3))
        session, xid = writer._session, writer._xid
        assert session is not None
        assert xid is not None
        session.run(f"XA END {xid.sql}")
        session.run(f"XA ROLLBACK {xid.sql}")
        with pytest.raises(DeclinedError, match="no longer inside"):
            writer.pre_commit()
        assert harness.ids() == []


class TestSizes:
    @pytest.mark.parametrize("load", ["local", "insert"])
    def test_batches_are_cut_and_joined_and_nothing_is_lost(self, sql_server_in_proof, load):
        harness = MySqlHarness(sql_server_in_proof, load=load, load_rows=700, load_bytes=20_000)
        sink = harness.opened()
        writer = sink.writers()(transaction_id(), Subtask(0, 0))
        for start, stop in ((0, 1), (1, 10), (10, 2_000), (2_000, 2_001), (2_001, 6_000)):
            writer.write(harness.batch(harness.rows(range(start, stop))))
        piece = writer.pre_commit()
        assert piece is not None
        assert piece.rows == 6_000
        assert commit(sink, piece) == [Committed()]
        assert harness.ids() == list(range(6_000))

    @pytest.mark.parametrize("load", ["local", "insert"])
    def test_a_value_larger_than_a_packet(self, sql_server_in_proof, load):
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        harness = MySqlHarness(
            sql_server_in_proof, "id BIGINT PRIMARY KEY, name LONGTEXT", schema, load=load
        )
        sink = harness.opened()
        text = "0123456789\t\n" * 300_000
        assert commit(
            sink, harness.write(sink, [{"id": 1, "name": text}, {"id": 2, "name": "b"}])
        ) == [Committed()]
        assert [row["name"] for row in harness.rows_visible()] == [text, "b"]

    def test_waiting_rows_are_bounded(self, sql_server_in_proof):
        harness = MySqlHarness(sql_server_in_proof, load_rows=100_000, load_bytes=100_000)
        writer = harness.opened().writers()(transaction_id(), Subtask(0, 0))
        for start in range(0, 20_000, 2_000):
            writer.write(harness.batch(harness.rows(range(start, start + 2_000))))
            assert sum(batch.nbytes for batch in writer._waiting) < 200_000
        writer.abort()


@pytest.mark.parametrize("load", ["local", "insert"])
@pytest.mark.parametrize(
    "text", ["", "\\N", "\n", None], ids=["empty", "backslash-N", "newline", "null"]
)
def test_a_table_of_one_column(sql_server_in_proof, load, text):
    harness = MySqlHarness(
        sql_server_in_proof, "name VARCHAR(9)", pa.schema([("name", pa.string())]), load=load
    )
    sink = harness.opened()
    assert commit(sink, harness.write(sink, [{"name": text}, {"name": "b"}, {"name": text}])) == [
        Committed()
    ]
    assert sorted(str(row["name"]) for row in harness.rows_visible()) == sorted(
        [str(text), "b", str(text)]
    )


def test_columns_that_the_rows_lack_get_their_defaults(sql_server_in_proof):
    ddl = (
        "extra INT DEFAULT 7, id BIGINT, made INT GENERATED ALWAYS AS (id + 1) VIRTUAL, k INT "
        "AUTO_INCREMENT PRIMARY KEY"
    )
    harness = MySqlHarness(sql_server_in_proof, ddl, pa.schema([("ID", pa.int64())]))
    sink = harness.opened()
    assert commit(sink, harness.write(sink, [{"ID": 1}])) == [Committed()]
    assert harness.rows_visible() == [{"extra": 7, "id": 1, "made": 2, "k": 1}]


@pytest.mark.parametrize("load", ["local", "insert"])
def test_a_default_of_long_ago_is_given_as_the_table_declares_it(
    sql_server: Server, load: str
) -> None:
    """Bytes that are no text, and dates that were allowed when the table was made: if the server's
    own mode still gives them.
    """
    defaults = {
        "VARBINARY(4) NOT NULL": "x'ff00fe'",
        "BINARY(2)": "x'c328'",
        "DATETIME NOT NULL": "'0000-00-00 00:00:00'",
        "DATE NOT NULL": "'0000-00-00'",
        "TIMESTAMP NOT NULL": "0",
        "DATE": "'2020-00-00'",
    }
    columns = ", ".join(
        f"c{number} {kind} DEFAULT {default}"
        for number, (kind, default) in enumerate(defaults.items())
    )
    schema = pa.schema([("id", pa.int64())])
    harness = MySqlHarness(sql_server, "id BIGINT PRIMARY KEY", schema, load=load)
    harness.sql("DROP TABLE target")
    with closing(harness.server.connect(harness.database)) as old, old.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute(f"CREATE TABLE target (id BIGINT PRIMARY KEY, {columns}) ENGINE = InnoDB")
        cursor.execute("INSERT INTO target (id) VALUES (1)")
        old.commit()
    harness.new_sink().check_connection()
    before = harness.sql("SELECT @@GLOBAL.sql_mode")[0][0]
    harness.sql("SET GLOBAL sql_mode = 'STRICT_TRANS_TABLES'")
    try:
        sink = harness.opened()
        assert commit(sink, harness.write(sink, [{"id": 2}])) == [Committed()]
    finally:
        harness.sql("SET GLOBAL sql_mode = %s", before)
    (_, *by_hand), (_, *ours) = harness.sql("SELECT * FROM target ORDER BY id")
    assert ours == by_hand
    sink = harness.opened()
    if "NO_ZERO_DATE" in before:
        with pytest.raises(RejectedRowsError, match="'c2'") as caught:
            harness.write(sink, [{"id": 3}], subtask=Subtask(0, 1))
        assert "one that they lack needs another default" in caught.value.remedy
        now = ", ".join(f"ALTER c{number} SET DEFAULT '2020-01-01'" for number in (2, 3, 4, 5))
        harness.sql(f"ALTER TABLE target {now}")
        sink = harness.opened()
    piece = harness.write(sink, [{"id": 3}], subtask=Subtask(0, 2))
    assert commit(sink, piece) == [Committed()]


@pytest.mark.parametrize("load", ["local", "insert"])
def test_a_column_that_the_rows_lack_is_refused_as_the_server_refuses_it(
    sql_server_in_proof: Server, load: str
) -> None:
    kinds = [
        "ENUM('new', 'paid')", "ENUM('', 'x')", "ENUM('new', 'paid') DEFAULT 'paid'", "BIT(3)",
        "SET('a', 'b')", "INT", "INT DEFAULT 7", "VARCHAR(9)", "TEXT", "DATE", "DATETIME", "JSON",
        "TIMESTAMP", "YEAR", "DECIMAL(9, 2)", "BOOLEAN", "BINARY(3)", "BLOB", "DOUBLE",
    ]  # fmt: skip
    if isinstance(sql_server_in_proof, MariaDbService):
        kinds.append("INT DEFAULT (7 + 0 * id)")
    for kind in kinds:
        schema = pa.schema([("id", pa.int64())])
        ddl = f"id BIGINT PRIMARY KEY, c {kind} NOT NULL"
        harness = MySqlHarness(sql_server_in_proof, ddl, schema, load=load)
        try:
            harness.sql("INSERT INTO target (id) VALUES (1)")
        except pymysql.Error:
            with pytest.raises(ConfigError, match="c: it is NOT NULL, has no default"):
                harness.opened()
            continue
        sink = harness.opened()
        assert commit(sink, harness.write(sink, [{"id": 2}])) == [Committed()]
        by_hand, ours = harness.sql("SELECT c FROM target ORDER BY id")
        assert ours == by_hand, kind
        sink.close()


@pytest.mark.parametrize("load", ["local", "insert"])
def test_a_row_that_innodb_has_no_room_for_is_refused_and_fits_after_the_statement(
    sql_server_in_proof: Server, load: str
) -> None:
    """A table of long ago, whose format keeps the beginning of long values within the row."""
    names = [f"v{number}" for number in range(60)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in names)])
    columns = ", ".join(f"{name} TEXT" for name in names)
    harness = MySqlHarness(sql_server_in_proof, "id BIGINT PRIMARY KEY", schema, load=load)
    harness.sql("DROP TABLE target")
    with closing(harness.server.connect(harness.database)) as old, old.cursor() as cursor:
        cursor.execute("SET SESSION innodb_strict_mode = 0")
        cursor.execute(
            f"CREATE TABLE target (id BIGINT PRIMARY KEY, {columns}) ENGINE = InnoDB "
            "ROW_FORMAT = COMPACT"
        )
    sink = harness.opened()
    long = {"id": 1} | dict.fromkeys(names, "x" * 760)
    with pytest.raises(RejectedRowsError, match="Row size too large") as caught:
        harness.write(sink, [long])
    [statement] = re.findall("ALTER TABLE .* ROW_FORMAT = DYNAMIC", caught.value.remedy)
    sink.close()
    harness.sql(statement)
    sink = harness.opened()
    piece = harness.write(sink, [long], subtask=Subtask(0, 1))
    assert commit(sink, piece) == [Committed()]
    assert harness.rows_visible() == [long]


@pytest.mark.parametrize("load", ["local", "insert"])
@pytest.mark.parametrize("kind", ["VARCHAR(9)", "TEXT", "CHAR(9)"])
def test_a_character_that_the_servers_store_as_another_one_is_refused(
    sql_server_in_proof: Server, kind: str, load: str
) -> None:
    """In a row that is not read back."""
    schema = pa.schema([("id", pa.int64()), ("t", pa.string())])
    ddl = f"id BIGINT, t {kind} CHARACTER SET cp932"
    harness = MySqlHarness(sql_server_in_proof, ddl, schema, load=load)
    sink = harness.opened()
    with pytest.raises(RejectedRowsError, match="column 't' cannot store") as caught:
        harness.write(sink, [{"id": 1, "t": "a"}, {"id": 2, "t": "a\u6661"}])
    assert "utf8mb4" in str(caught.value)
    rows: list[dict[str, Any]] = [
        {"id": 1, "t": "\u6659"},
        {"id": 2, "t": "\u6657"},
        {"id": 3, "t": None},
    ]
    piece = harness.write(sink, rows, subtask=Subtask(0, 1))
    assert commit(sink, piece) == [Committed()]
    assert harness.rows_visible() == rows
    sink.close()
    harness.sql(f"ALTER TABLE target MODIFY t {kind} CHARACTER SET utf8mb4")
    sink = harness.opened()
    piece = harness.write(sink, [{"id": 4, "t": "a\u6661"}], checkpoint=1)
    assert commit(sink, piece) == [Committed()]


@pytest.mark.parametrize(
    "odd", ["a`b'c\"d %s {file}\\", "a.b", "\u00fcn\u00ef \u2603 #?/;@-", "order", "x" * 64]
)
def test_names_that_need_quoting(sql_server_in_proof, odd):
    schema = pa.schema([(odd, pa.int64()), ("select", pa.binary())])
    harness = MySqlHarness(sql_server_in_proof)
    quoted = odd.replace("`", "``")
    # Without arguments: the driver would take the percent sign for one.
    harness.sql(
        f"CREATE TABLE `{quoted}` (`{quoted}` BIGINT PRIMARY KEY, `select` BLOB) ENGINE = InnoDB"
    )
    harness.fields = schema
    for number, load in enumerate(["local", "insert"]):
        sink = harness.opened(table=odd, load=load)
        piece = harness.write(
            sink, [{odd: number, "select": b"x"}], subtask=Subtask(number, number)
        )
        assert commit(sink, piece) == [Committed()]
    assert harness.sql(f"SELECT COUNT(*) FROM `{quoted}`") == [(2,)]


EXPONENTS = [
    "0.000000123456789012345678901234",
    "-0.000000000000000000000000000001",
    "99999999.999999999999999999999999999999",
    "0",
]
FLOATS = [3.4028234663852886e38, -3.4028234663852886e38, 7.038530726457118e-26, 1e-45, 0.1]


@pytest.mark.parametrize("load", ["local", "insert"])
def test_numbers_are_stored_to_the_last_digit(sql_server_in_proof: Server, load: str) -> None:
    """In an INSERT, 1E-7 is a DOUBLE; the shortest text of a FLOAT is rounded twice."""
    schema = pa.schema([("id", pa.int64()), ("d", pa.decimal128(38, 30)), ("f", pa.float32())])
    ddl = "id BIGINT PRIMARY KEY, d DECIMAL(38,30), f FLOAT"
    harness = MySqlHarness(sql_server_in_proof, ddl, schema, load=load)
    rows = [
        {
            "id": number,
            "d": decimal.Decimal(EXPONENTS[number % len(EXPONENTS)]),
            "f": FLOATS[number % len(FLOATS)],
        }
        for number in range(100)
    ]
    sink = harness.opened()
    assert commit(sink, harness.write(sink, rows)) == [Committed()]
    given = pa.RecordBatch.from_pylist(rows, schema).to_pylist()
    found = harness.sql("SELECT id, d, f + 0e0 FROM target ORDER BY id")
    assert [tuple(row) for row in found] == [tuple(row.values()) for row in given]


def test_half_a_character_of_json_is_refused_with_its_row(sql_server_in_proof: Server) -> None:
    schema = pa.schema([("id", pa.int64()), ("j", pa.string())])
    harness = MySqlHarness(sql_server_in_proof, "id BIGINT PRIMARY KEY, j JSON", schema)
    fine = '{"a": "\\ud83d\\ude00", "b": "\\\\ud800"}'
    sink = harness.opened()
    assert commit(sink, harness.write(sink, [{"id": 0, "j": fine}])) == [Committed()]
    for half in ("\\ud800", "\\uDC00", "x\\udc00\\ud800"):
        rows = [{"id": number, "j": fine} for number in range(1, 50)]
        rows[30]["j"] = f'{{"a": "{half}"}}'
        with pytest.raises(RejectedRowsError) as caught:
            harness.write(sink, rows)
        if isinstance(sql_server_in_proof, MySqlService):
            assert "one half of a character" in str(caught.value)
    assert harness.ids() == [0]
