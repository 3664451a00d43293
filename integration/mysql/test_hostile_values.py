"""Types of columns by hostile values: a reader gets what was sent, or the row is refused by name.

No value needs the net of the rows that are read back: of a large statement only some are.
"""

from __future__ import annotations

import datetime
import json
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv6Address
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from harness.selection import representatives
from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import RejectedRowsError
from twophase.ids import Subtask
from twophase.testing.services import MariaDbService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(3)]

SEED = 20_240_501
EACH = 100
"""Random values of a column, besides the chosen ones."""

POWERS = [sign * 2**n for n in (7, 8, 15, 16, 23, 24, 31, 32, 53, 62) for sign in (1, -1)]
INTEGERS = [0, 1, -1, *(n + off for n in POWERS for off in (-1, 0, 1)), 2**63 - 1, -(2**63)]
REALS = [
    0.0, -0.0, 0.1, 1 / 3, 1e308, -1e308, 5e-324, 2.2250738585072014e-308, 1e15, 1e16, 1e22, 1e23,
    123456789012345680.0, float("nan"), float("inf"), -float("inf"), 16_777_217.0, 0.5,
]  # fmt: skip
[TENTH] = struct.unpack("<f", struct.pack("<f", 0.1))
"""As a FLOAT has it."""
TEXTS = [
    "", " ", "  ", "a ", " a", "a\t", "a\0", "\0", "\\", "\\N", "NULL", "'", '"', "\n", "\r\n",
    "caf\u00e9", "\u20ac", "\u6f22", "\U0001f600", "\ufeff", "e\u0301", "\u00e9", "\u301c",
    "\uff5e", "\u2016", "\u2225", "\u2212", "\uff0d", "\u00a5", "\u203e", "~", "\u0080", "\u0085",
    "\u009f", "\u00a0", "\u3000", "\ufffd", "\ufffe", "\uffff", "\ue000", "1e5", "x" * 10,
    "x" * 11, "\u6f22" * 10, "x" * 9 + " ", "x" * 10 + " ", "x" * 300,
]  # fmt: skip
BYTES = [
    b"",
    b"\0",
    b"ab",
    b"ab\0",
    b"\xff",
    bytes(10),
    bytes(11),
    b"\\N",
    b"\t\n",
    bytes(range(9)),
]
DAYS = [datetime.date(*parts) for parts in ((1, 1, 1), (999, 12, 31), (1000, 1, 1), (1970, 1, 1),
                                            (2024, 2, 29), (9999, 12, 31))]  # fmt: skip
MOMENTS = [
    datetime.datetime(*parts) for parts in (
        (1, 1, 1), (999, 12, 31, 23, 59, 59, 999_999), (1000, 1, 1), (1969, 12, 31, 23, 59, 59),
        (1970, 1, 1), (1970, 1, 1, 0, 0, 1), (2024, 3, 31, 2, 30), (2024, 10, 27, 1, 30, 0, 5),
        (2038, 1, 19, 3, 14, 7), (2038, 1, 19, 3, 14, 8), (2106, 2, 7, 6, 28, 16),
        (9999, 12, 31, 23, 59, 59, 999_999), (2024, 1, 1, 0, 0, 0, 500_000),
        (2024, 1, 1, 0, 0, 0, 999), (2024, 1, 1, 0, 0, 0, 999_000),
    )
]  # fmt: skip
CLOCKS = [datetime.time(0), datetime.time(23, 59, 59, 999_999), datetime.time(1, 2, 3, 4),
          datetime.time(12, 0, 0, 500_000)]  # fmt: skip
DECIMALS = [Decimal(text) for text in ("0", "-0", "1", "-1", "0.0001", "-0.0001", "123456.7891",
                                       "999999.9999", "-999999.9999")]  # fmt: skip
DOCUMENTS = [
    "null", "true", "0", "-0", "-0.0", "1", '""', "[]", "{}", '"\\u0000"', '"\\ud800"',
    '"\\ud83d\\ude00"', '{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', '[{"a":1},{"a":2}]', '{"":1}',
    '{"\\u0061":1,"a":2}', '{"a":1,"A":2}', '{"a ":1,"a":2}', '{"\u00e9":1,"e\\u0301":2}', "NaN",
    "[1,]", "", " ", "{", '{"a":"\\/"}', "1.0", "1e2", "1E5", "1e400", "1e-400", "5e-324",
    "1.23456e-320", str(2**63 - 1), str(2**63), str(2**64 - 1), str(2**64), str(-(2**63)),
    str(-(2**63) - 1), str(10**20), str(2**53 + 1), f"{2**53 + 1}.0", "0.12345678901234567890",
    '{"n":21312332514254356413641614614}', "0.30000000000000004", "731697647.47261017", "9" * 5000,
    "1.7976931348623157e308", "1.00000000000000000000", "[" * 90 + "]" * 90, "[" * 101 + "]" * 101,
    "[" * 3000 + "]" * 3000, '{"a":"x  "}', '{"b":1,"a":2}', '  {"a" :  1}  ',
    '{"id":"0123456789012345678"}',
]  # fmt: skip
CHARACTER_SETS = ["latin1", "ascii", "utf8mb3", "ucs2", "utf16", "sjis", "cp932", "ujis", "gbk",
                  "gb2312", "big5", "euckr", "koi8r", "cp1251", "cp1250", "latin2", "greek",
                  "hebrew", "tis620", "cp850", "macroman", "geostd8", "armscii8"]  # fmt: skip


WIDE_INTEGERS = [*INTEGERS, 2**63, 2**64 - 1, 2**64, 10**20 - 1, -(10**20) + 1, 10**19]
YEARS = [0, 1, 24, 69, 70, 99, 100, 1900, 1901, 1970, 2024, 2069, 2155, 2156, -1, 9999, 2**31 - 1]
FRACTIONS = [Decimal(text) for text in (
    "0", "-0", "7", "7.5", "-7.5", "127.0000", "127.0001", "128", "0.5", "0.05", "0.0001", "99.95",
    "-99.95", "999999.9999", "255", "256", "4294967295", "4294967296", "-2147483648", "2024",
    "99999999999999.9999",
)]  # fmt: skip
LABELS = ["new", "paid", "x,y", "it's", 'q"q', "back\\slash", "two\nlines", "tab\t", "",
          "caf\u00e9", "\u6f22", "2", "0", "\\N", "%s", " lead", "NULL", "a\rb",
          "\\'"]  # fmt: skip
MORE_LABELS = [*LABELS, "\0", "PAID", "cafe"]
NO_LABELS = ["1", "3", "PAID", "Paid", "paid ", " paid", "paid\t", "new,paid", "x", "y", " ", "\\",
             "N", "cafe", "cafe\u0301", "?", "\U0001f600", "back\\\\slash", "it''s",
             "''"]  # fmt: skip
SETS = ["", "a", "b", "a,b", "b,a", "a,a", "a,", "a,,b", ",", ",a", "1", "3", "1,3", "3,1", "A",
        "a ", " a", "a, b", "it's", "b,it's", "caf\u00e9", "a,b,it's,caf\u00e9,1", "c", "0", "7",
        "\t"]  # fmt: skip
UUIDS = ["123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000",
         "ffffffff-ffff-ffff-ffff-ffffffffffff", "00000000-0000-7000-8000-000000000001",
         "123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000", "", "1",
         "{123e4567-e89b-12d3-a456-426614174000}", "123e4567-e89b-12d3-a456-42661417400",
         "123e4567-e89b-12d3-a456-426614174000\n",
         "123e-4567-e89b12d3-a456-426614174000"]  # fmt: skip
ADDRESSES = ["0.0.0.0", "1.2.3.4", "255.255.255.255", "01.2.3.4", "1.2.3", "256.1.1.1", " 1.2.3.4",
             "1.2.3.4 ", "1.2.3.4\n", "", "::", "::1", "::2", "1::", "1:0:2:3:4:5:6:7", "::1:2",
             "1::2:3:4:5:6:7", "1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7::", "0:1:2:3:4:5:6:7", "::0.1.0.2",
             "::1:2:3:4:5:6:7", "::ffff:1.2.3.4", "::1.2.3.4", "1:0:0:2:0:0:0:3", "1:0:0:2::3",
             "1:0:0:2:3:0:0:4", "1::2:3:0:0:4", "::ffff:0:1.2.3.4", "::ffff:0:102:304", "::102",
             "64:ff9b::1.2.3.4", "64:ff9b::102:304", "2001:DB8::1", "2001:db8::1", "::0.0.1.2",
             "::ffff:0:0", "::ffff:0.0.0.0", "fe80::1%eth0", "fe80::1", "0:0:1::", "10:0:20::",
             "::ffff:102:304", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9", "2001:0db8::1"]  # fmt: skip


def quoted(labels: Sequence[str]) -> str:
    """Labels as in a definition."""
    texts = (label.replace("\\", "\\\\").replace("'", "''") for label in labels)
    return ", ".join(f"'{text}'" for text in texts)


def address(random: Random) -> str:
    words = (random.choice([0, 0, 0, 1, 0xFFFF, random.randrange(2**16)]) for _ in range(8))
    return str(IPv6Address(b"".join(word.to_bytes(2) for word in words)))


def real(random: Random) -> float:
    [value] = struct.unpack("<d", random.randbytes(8))
    return float(value)


def text(random: Random) -> str:
    planes = [(0x20, 0x7E), (0x80, 0xFFFF), (0x3000, 0x9FFF), (0x80, 0x5FF), (0x1_0000, 0x1_F9FF)]
    first, last = random.choice(planes)
    letters = (chr(random.randint(first, last)) for _ in range(random.randint(1, 10)))
    return "".join(letter for letter in letters if not 0xD800 <= ord(letter) < 0xE000)


def number_text(random: Random) -> str:
    digits = str(random.randrange(10 ** random.randint(1, 18)))
    at = random.randint(1, len(digits))
    exponent = random.choice(["", "", "", f"e{random.randint(-30, 30)}"])
    return f"{digits[:at].lstrip('0') or '0'}.{digits[at:] or '0'}{exponent}"


def document(random: Random) -> str:
    keys = [random.choice(["a", "b", "c", "\u00e9"]) for _ in range(random.randint(1, 3))]
    return "{" + ", ".join(f'"{key}": {number_text(random)}' for key in keys) + "}"


def moment(random: Random) -> datetime.datetime:
    since = datetime.timedelta(
        seconds=random.randrange(2**32), microseconds=random.randrange(10**6)
    )
    return datetime.datetime(1970, 1, 1) + since


@dataclass(frozen=True)
class Kind:
    """A type of rows, and the columns that it is tried in.

    Attributes:
        type: of the rows.
        chosen: values.
        columns: types of the column.
        random: makes further values.
        in_proof: further columns, tried in the proof only.
        only: the server that has such columns.
    """

    type: pa.DataType
    chosen: Sequence[Any]
    columns: Sequence[str]
    random: Any = None
    in_proof: Sequence[str] = ()
    only: Any = Server


KINDS = [
    Kind(pa.int64(), INTEGERS, ["BIGINT", "BIGINT UNSIGNED", "BIGINT ZEROFILL", "DECIMAL(20,0)",
                                "INT UNSIGNED", "BIGINT NOT NULL DEFAULT 5"]),
    Kind(pa.int32(), [n for n in INTEGERS if -(2**31) <= n < 2**31],
         ["INT", "MEDIUMINT UNSIGNED", "DOUBLE", "DECIMAL(12,2)"]),
    Kind(pa.int16(), [n for n in INTEGERS if -(2**15) <= n < 2**15], ["SMALLINT", "FLOAT"]),
    Kind(pa.bool_(), [True, False], ["BOOLEAN", "BIT(1)", "BIT(9)", "TINYINT UNSIGNED", "BIGINT"]),
    Kind(pa.float64(), REALS, ["DOUBLE", "DOUBLE UNSIGNED", "DOUBLE NOT NULL"], real),
    Kind(pa.float32(), [0.5, 0.0, -1.25, TENTH, 16_777_216.0, 2.0**-126, 2.0**120, float("inf")],
         ["FLOAT", "DOUBLE", "FLOAT UNSIGNED"]),
    Kind(pa.int64(), INTEGERS, [], in_proof=[
        "TINYINT", "TINYINT UNSIGNED", "SMALLINT", "SMALLINT UNSIGNED", "MEDIUMINT",
        "MEDIUMINT UNSIGNED", "INT", "INT UNSIGNED ZEROFILL", "DECIMAL(3,0)", "FLOAT", "DOUBLE",
        "DECIMAL(9,2) UNSIGNED", "DOUBLE UNSIGNED", "BIT(1)", "BIT(12)", "BIT(63)", "BIT(64)"]),
    Kind(pa.int32(), YEARS, [], in_proof=["YEAR"]),
    Kind(pa.uint64(), [n for n in WIDE_INTEGERS if 0 <= n < 2**64], [],
         in_proof=["BIGINT", "BIGINT UNSIGNED", "BIT(64)", "DECIMAL(19,0)", "YEAR"]),
    Kind(pa.decimal128(20, 0), [Decimal(n) for n in [*WIDE_INTEGERS, *YEARS] if abs(n) < 10**20],
         [], in_proof=["TINYINT", "TINYINT UNSIGNED", "SMALLINT", "SMALLINT UNSIGNED", "MEDIUMINT",
                       "MEDIUMINT UNSIGNED", "INT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED",
                       "BIT(64)", "BIT(9)", "YEAR", "DECIMAL(19,0)", "DECIMAL(22,3)",
                       "DECIMAL(5,0) UNSIGNED"]),
    Kind(pa.decimal128(18, 4), FRACTIONS, [],
         lambda random: Decimal(random.randrange(-(10**random.randint(1, 18)), 10**9)).scaleb(-4),
         ["TINYINT", "TINYINT UNSIGNED", "INT", "BIGINT UNSIGNED", "BIT(8)", "YEAR", "DECIMAL(4,1)",
          "DECIMAL(2,2)", "DECIMAL(65,30)", "DECIMAL(14,0)", "DECIMAL(18,4) UNSIGNED"]),
    Kind(pa.string(), [*LABELS, *NO_LABELS], [], in_proof=[
        f"ENUM({quoted(LABELS)})", f"ENUM({quoted(MORE_LABELS)}) COLLATE utf8mb4_bin",
        "ENUM('new', 'paid', 'caf\u00e9', '?') CHARACTER SET latin1", "ENUM('', '1') NOT NULL",
        "ENUM('\U0001f600', '?x', 'paid') COLLATE utf8mb4_bin"]),
    Kind(pa.string(), SETS, [], in_proof=[
        "SET('a', 'b', 'it''s', 'caf\u00e9', '1')", "SET('a', 'b', 'it''s', '', '3')",
        "SET('a', 'b') CHARACTER SET latin1 NOT NULL",
        f"SET({', '.join(repr(f'l{number}') for number in range(61))}, 'a', 'b', 'it''s')"]),
    Kind(pa.string(), UUIDS, [], in_proof=["UUID"], only=MariaDbService),
    Kind(pa.string(), ADDRESSES, [], address, ["INET4", "INET6"], MariaDbService),
    Kind(pa.decimal128(10, 4), DECIMALS, ["DECIMAL(10,4)", "DECIMAL(30,10)",
                                          "DECIMAL(10,4) UNSIGNED"],
         lambda random: Decimal(random.randrange(-(10**10) + 1, 10**10)).scaleb(-4)),
    Kind(pa.string(), TEXTS, ["VARCHAR(10)", "CHAR(10)", "TEXT", "VARCHAR(10) NOT NULL DEFAULT 'a'",
         "VARCHAR(10) COLLATE utf8mb4_bin", "VARCHAR(10) CHARACTER SET gbk"], text,
         ["TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "CHAR(10) COLLATE utf8mb4_bin",
         *(f"VARCHAR(10) CHARACTER SET {name}" for name in CHARACTER_SETS if name != "gbk")]),
    Kind(pa.string(), DOCUMENTS, ["JSON"], document),
    Kind(pa.binary(), BYTES, ["VARBINARY(10)", "BINARY(10)", "BLOB", "TINYBLOB"],
         lambda random: random.randbytes(random.randint(0, 10)), ["MEDIUMBLOB", "LONGBLOB"]),
    Kind(pa.date32(), DAYS, ["DATE", "DATETIME", "DATETIME(6)"]),
    Kind(pa.timestamp("us"), MOMENTS, ["DATETIME", "DATETIME(3)", "DATETIME(6)",
                                       "TIMESTAMP NULL", "TIMESTAMP(6) NULL"], moment),
    Kind(pa.time64("us"), CLOCKS, ["TIME", "TIME(3)", "TIME(6)"]),
]  # fmt: skip
CASES = [
    pytest.param(
        kind,
        column,
        id=f"{kind.type} {column[:40]!r}",
        marks=[pytest.mark.proof] if column in kind.in_proof else [],
    )
    for kind in KINDS
    for column in (*kind.columns, *kind.in_proof)
]


class Deliveries:
    """Sends values, halving those that are refused until each refused one is known.

    Args:
        harness: of the table.
        rows: the values by their key.
    """

    def __init__(self, harness: MySqlHarness, rows: dict[int, Any]) -> None:
        self.refused: dict[int, str] = {}
        self._harness = harness
        self._sink = harness.opened()
        self._tasks = count()
        self._send(rows)

    def _send(self, rows: dict[int, Any]) -> None:
        task = next(self._tasks)
        sent = [{"k": key, "v": value} for key, value in rows.items()]
        try:
            piece = self._harness.write(self._sink, sent, subtask=Subtask(0, task))
        except RejectedRowsError as error:
            if len(rows) == 1:
                self.refused[next(iter(rows))] = str(error)
                return
            keys = list(rows)
            for part in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                self._send({key: rows[key] for key in part})
        else:
            assert commit(self._sink, piece) == [Committed()]


def values_of(kind: Kind) -> Iterator[Any]:
    yield None
    yield from kind.chosen
    random = Random(SEED)
    if kind.random is not None:
        yield from (kind.random(random) for _ in range(EACH))


def read(harness: MySqlHarness, kind: Kind, column: str) -> dict[int, Any]:
    """What a reader with a connection of its own gets, as the values that were sent."""
    with closing(harness.server.connect(harness.database)) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            shown = "v + 0e0" if "FLOAT" in column else "v"
            cursor.execute(f"SELECT k, {shown} FROM target")
            found = dict(cursor.fetchall())
    return {key: None if value is None else as_sent(value, kind) for key, value in found.items()}


def as_sent(value: Any, kind: Kind) -> Any:
    if isinstance(value, bytes) and not pa.types.is_binary(kind.type):
        value = int.from_bytes(value)
    if pa.types.is_boolean(kind.type):
        return bool(value)
    if pa.types.is_time(kind.type):
        return (datetime.datetime.min + value).time()
    if pa.types.is_date(kind.type) and isinstance(value, datetime.datetime):
        assert value.time() == datetime.time()
        return value.date()
    return value


def parsed(document: Any) -> Any:
    """A document with each of its keys, and numbers as they are written."""
    return json.loads(
        document,
        parse_int=Decimal,
        parse_float=Decimal,
        object_pairs_hook=lambda pairs: sorted(pairs),
    )


@pytest.mark.parametrize("load", representatives(["local", "insert"], {"local"}))
@pytest.mark.parametrize(("kind", "column"), CASES)
def test_a_value_reads_back_as_it_was_sent_or_is_refused_by_name(
    sql_server_in_proof: Server, kind: Kind, column: str, load: str
) -> None:
    if not isinstance(sql_server_in_proof, kind.only):
        pytest.skip("the other server's")
    schema = pa.schema([("k", pa.int64()), ("v", kind.type)])
    ddl = f"k BIGINT PRIMARY KEY, v {column}"
    harness = MySqlHarness(sql_server_in_proof, ddl, schema, load=load)
    sent = dict(enumerate(values_of(kind)))
    refused = Deliveries(harness, sent).refused
    found = read(harness, kind, column)
    assert {*found} | {*refused} == {*sent}
    assert not {*found} & {*refused}
    assert found
    # each server quotes the name of a column in its own way; JSON is parsed without one
    assert all(re.search("['`.]v['`]|JSON", said) for said in refused.values())
    assert not [said for said in refused.values() if "another row than was sent" in said]
    is_parsed = column == "JSON" and not isinstance(sql_server_in_proof, MariaDbService)
    same = parsed if is_parsed else lambda value: value
    for key, value in found.items():
        assert value is None or same(value) == same(sent[key]), (key, sent[key], value)
        assert (value is None) == (sent[key] is None)
