"""What is written reads back as the rows, in both formats, by a parser that follows
the server's rules.
"""

from __future__ import annotations

import datetime
import decimal
import math
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twophase.errors import RejectedRowsError
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.encoders import to_hex
from twophase.sinks.mysql.rows.encoding import encode
from twophase.sinks.mysql.rows.text_formats import INSERT_VALUES, LOAD_DATA
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.writer import MySqlWriter, MySqlWriters

TYPES = {
    "text": (pa.string(), Encoding.TEXT),
    "bytes": (pa.binary(), Encoding.BINARY),
    "big": (pa.int64(), Encoding.PLAIN),
    "unsigned": (pa.uint64(), Encoding.PLAIN),
    "flag": (pa.bool_(), Encoding.BOOL),
    "ratio": (pa.float64(), Encoding.FLOAT),
    "single": (pa.float32(), Encoding.FLOAT),
    "price": (pa.decimal128(38, 18), Encoding.PLAIN),
    "day": (pa.date32(), Encoding.DATE),
    "moment": (pa.timestamp("us"), Encoding.TIMESTAMP),
    "clock": (pa.time64("us"), Encoding.TIME),
}


def plan(name: str, **changes) -> ColumnPlan:
    kind, encoding = TYPES[name]
    return ColumnPlan(
        **{
            "field": name,
            "column": name,
            "type": kind,
            "encoding": encoding,
            "nullable": True,
            "fraction_digits": 18 if name == "price" else 6,
            **changes,
        }
    )


def fields_of(data: bytes) -> Iterator[list[bytes | None]]:
    """LOAD DATA's rules: tab, newline, backslash; \\N is NULL."""
    row: list[bytes | None] = []
    field, escaped, null = bytearray(), False, False
    for byte in data:
        character = bytes([byte])
        if escaped:
            escaped = False
            null = character == b"N" and not field
            field += {b"t": b"\t", b"n": b"\n", b"0": b"\0", b"N": b""}.get(character, character)
        elif character == b"\\":
            escaped = True
        elif character in b"\t\n":
            row.append(None if null else bytes(field))
            field, null = bytearray(), False
            if character == b"\n":
                yield row
                row = []
        else:
            field += character
    assert not field
    assert not row


def literals_of(data: bytes) -> Iterator[list[bytes | None]]:
    """The rules of VALUES lists: quotes, backslashes, X'..', NULL."""
    position = 0

    def literal() -> bytes | None:
        nonlocal position
        if data.startswith(b"NULL", position):
            position += 4
            return None
        if data.startswith(b"X'", position):
            end = data.index(b"'", position + 2)
            value = data[position + 2 : end]
            position = end + 1
            return value
        if data[position : position + 1] == b"'":
            text = bytearray()
            position += 1
            while data[position : position + 1] != b"'":
                position += data[position : position + 1] == b"\\"
                text += data[position : position + 1]
                position += 1
            position += 1
            return bytes(text)
        start = position
        while data[position : position + 1] not in (b",", b")"):
            position += 1
        return data[start:position]

    while position < len(data):
        assert data[position : position + 1] == b"("
        position += 1
        row = [literal()]
        while data[position : position + 1] == b",":
            position += 1
            row.append(literal())
        assert data[position : position + 2] == b"),"
        position += 2
        yield row


def read(name: str, field: bytes | None) -> object:
    """What the server would store."""
    if field is None:
        return None
    text = field.decode() if name != "bytes" else ""
    match name:
        case "bytes":
            return bytes.fromhex(field.decode())
        case "big" | "unsigned":
            return int(text)
        case "flag":
            return {"1": True, "0": False}[text]
        case "ratio" | "single":
            return float(text)
        case "price":
            return decimal.Decimal(text)
        case "day":
            return datetime.date.fromisoformat(text)
        case "moment":
            return datetime.datetime.fromisoformat(text)
        case "clock":
            return datetime.time.fromisoformat(text)
    return text


tricky = st.text(st.sampled_from("a\t\n\r\\\0'\"`,()NX;\u00e9\u6f22\U0001f600 %")) | st.text()
values = {
    "text": tricky,
    "bytes": st.binary(),
    "big": st.integers(-(2**63), 2**63 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "flag": st.booleans(),
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "single": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "price": st.decimals("-99999999999999999999", "99999999999999999999", places=18),
    "day": st.dates(datetime.date(1000, 1, 1)),
    "moment": st.datetimes(datetime.datetime(1000, 1, 1)),
    "clock": st.times(),
}
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | values[name] for name in values}),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize(
    ("text_format", "parse"),
    [(LOAD_DATA, fields_of), (INSERT_VALUES, literals_of)],
    ids=["load", "insert"],
)
@settings(deadline=None)
@given(rows=rows, order=st.permutations(list(TYPES)), cut=st.integers(0, 3))
def test_rows_read_back_as_they_were(text_format, parse, rows, order, cut):
    schema = pa.schema([(name, TYPES[name][0]) for name in TYPES])
    # A slice: buffers with offsets are where such code goes wrong.
    batch = pa.RecordBatch.from_pylist([*rows[:cut], *rows], schema=schema).slice(len(rows[:cut]))
    encoded = encode(batch, [plan(name) for name in order], text_format)
    stored: list[dict[str, Any]] = [
        {name: read(name, field) for name, field in zip(order, row, strict=True)}
        for row in parse(bytes(encoded.data))
    ]
    assert encoded.rows == len(rows) == len(stored)
    single = [
        {**row, "single": None if row["single"] is None else _single(row["single"])}
        for row in stored
    ]
    assert [{name: row[name] for name in TYPES} for row in single] == batch.to_pylist()


def _single(value: float) -> float:
    return float(pa.scalar(value, pa.float32()).as_py())


@pytest.mark.parametrize("text_format", [LOAD_DATA, INSERT_VALUES], ids=["load", "insert"])
@settings(deadline=None)
@given(texts=st.lists(st.none() | tricky, min_size=1, max_size=6))
def test_row_bounds_are_where_rows_end(text_format, texts):
    encoded = encode(
        pa.RecordBatch.from_pydict({"text": pa.array(texts, pa.string())}),
        [plan("text")],
        text_format,
    )
    cut = [
        bytes(encoded.data[start:stop])
        for start, stop in zip(encoded.ends[:-1], encoded.ends[1:], strict=True)
    ]
    alone = [
        bytes(
            encode(
                pa.RecordBatch.from_pydict({"text": pa.array([text], pa.string())}),
                [plan("text")],
                text_format,
            ).data
        )
        for text in texts
    ]
    assert cut == alone


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(), max_size=9), st.integers(0, 4))
def test_hex_digits_of_any_slice(items, start):
    sliced = pa.array(items, pa.binary()).slice(start)
    assert to_hex(sliced).to_pylist() == [
        None if item is None else item.hex().upper() for item in items[start:]
    ]


def reject(name: str, items: list[Any], kind: pa.DataType | None = None, **changes) -> str:
    batch = pa.RecordBatch.from_pydict({name: pa.array(items, kind or TYPES[name][0])})
    with pytest.raises(RejectedRowsError) as caught:
        encode(batch, [plan(name, **changes)], LOAD_DATA)
    assert name in str(caught.value)
    return str(caught.value)


def first_piece(batch: pa.RecordBatch, load_rows: int) -> pa.RecordBatch:
    """What a writer sends of a batch at once."""
    other: Any = None
    shared = MySqlWriters(other, other, other, "", other, True, load_rows, load_bytes=8_000_000)
    return next(MySqlWriter(shared, other, other)._pieces(batch))


class TestValuesThatWouldChangeAreRefused:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("name", ["ratio", "single"])
    def test_what_is_no_number(self, name, bad):
        assert "Row 3" in reject(name, [1.0, None, bad])

    def test_null_where_none_is_allowed(self):
        assert "Row 2" in reject("text", ["a", None], nullable=False)

    def test_text_that_is_not_utf8(self):
        broken = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xc3\x28")]
        )
        batch = pa.RecordBatch.from_arrays([broken], ["text"])
        with pytest.raises(RejectedRowsError, match=r"UTF-8.*: decode it before the sink"):
            encode(batch, [plan("text")], LOAD_DATA)
        decoded = pa.RecordBatch.from_pydict({"text": [b"\xc3\x28".decode("latin-1")]})
        assert list(fields_of(bytes(encode(decoded, [plan("text")], LOAD_DATA).data))) == [
            ["\u00c3(".encode()]
        ]

    def test_spaces_that_char_strips(self):
        assert "CHAR" in reject("text", ["a", "b "], padded=True)

    def test_zeros_that_binary_pads(self):
        assert "BINARY" in reject("bytes", [b"ab", b"a"], padded=True, length=2)

    @pytest.mark.parametrize("digits", [0, 3, 5])
    def test_digits_of_a_second_that_are_rounded(self, digits):
        fine = datetime.datetime(2020, 1, 1, 0, 0, 0, 0)
        bad = datetime.datetime(1969, 12, 31, 23, 59, 59, 1)
        assert "Row 2" in reject("moment", [fine, bad], fraction_digits=digits)
        assert "Row 1" in reject("clock", [datetime.time(1, 2, 3, 1)], fraction_digits=digits)

    def test_digits_that_the_column_keeps_are_fine(self):
        moments = [datetime.datetime(2020, 1, 1, 0, 0, 0, 123000), None]
        batch = pa.RecordBatch.from_pydict({"moment": pa.array(moments, pa.timestamp("us"))})
        assert encode(batch, [plan("moment", fraction_digits=3)], LOAD_DATA).rows == 2

    @pytest.mark.parametrize("days", [-354_286, 2_932_897])
    def test_days_that_mysql_does_not_keep(self, days):
        reject("day", [0, days], pa.date32())

    @pytest.mark.parametrize("ticks", [-354_285 * 86_400_000_000 - 1, 2_932_897 * 86_400_000_000])
    def test_moments_that_mysql_does_not_keep(self, ticks):
        reject("moment", [0, ticks], pa.timestamp("us"))

    def test_nanoseconds(self):
        assert "correct the rows or cast" in reject("moment", [1], pa.timestamp("ns"))
        moments = pa.array([1], pa.timestamp("ns"))
        batch = pa.record_batch([moments.cast(pa.timestamp("us"), safe=False)], names=["moment"])
        assert encode(batch, [plan("moment")], LOAD_DATA).rows == 1

    def test_a_column_that_is_not_there(self):
        batch = pa.RecordBatch.from_pydict({"other": [1]})
        with pytest.raises(RejectedRowsError, match=r"other.*: restart the job with the schema"):
            encode(batch, [plan("big")], LOAD_DATA)
        assert encode(batch, [plan("big", field="other")], LOAD_DATA).rows == 1

    def test_a_batch_of_another_type(self):
        assert "correct the rows or cast" in reject("big", ["not a number"], pa.string())
        batch = pa.RecordBatch.from_pydict({"big": ["1"]})
        assert bytes(encode(batch, [plan("big")], LOAD_DATA).data) == b"1\n"

    def test_more_than_a_gigabyte_of_bytes_in_few_of_many_rows(self):
        """The average row is short, so that many make a piece."""
        large, rows = 1100, 1_100_000
        bounds = np.minimum(np.arange(rows + 1), large).astype(np.int32) * 1_000_000
        data = pa.py_buffer(mmap.mmap(-1, large * 1_000_000))  # zeros that take no memory
        given = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(bounds), data])
        batch = pa.record_batch([given], names=["bytes"])
        with pytest.raises(RejectedRowsError, match=r"1 GB.*: lower load_rows"):
            encode(first_piece(batch, load_rows=50_000), [plan("bytes")], LOAD_DATA)
        assert encode(first_piece(batch, load_rows=1), [plan("bytes")], LOAD_DATA).rows == 1


class TestTypesThatAreCast:
    @pytest.mark.parametrize(
        ("name", "items", "kind", "written"),
        [
            ("moment", [0], pa.timestamp("us", "Europe/Berlin"), b"1970-01-01 00:00:00.000000\n"),
            ("moment", [1], pa.timestamp("ms"), b"1970-01-01 00:00:00.001000\n"),
            ("moment", [1000], pa.timestamp("ns"), b"1970-01-01 00:00:00.000001\n"),
            ("text", ["a"], pa.large_string(), b"a\n"),
            ("text", ["a"], pa.string_view(), b"a\n"),
            ("text", ["a"], pa.dictionary(pa.int8(), pa.string()), b"a\n"),
            ("bytes", [b"a"], pa.large_binary(), b"61\n"),
            ("bytes", [b"a"], pa.binary(1), b"61\n"),
            ("big", [7], pa.int8(), b"7\n"),
            ("day", [datetime.date(2020, 2, 29)], pa.date64(), b"2020-02-29\n"),
        ],
    )
    def test_cast(self, name, items, kind, written):
        batch = pa.RecordBatch.from_pydict({name: pa.array(items, kind)})
        assert bytes(encode(batch, [plan(name)], LOAD_DATA).data) == written


KEPT_DAYS = {-354_285: "1000-01-01", 2_932_896: "9999-12-31"}
LOST_DAYS = (-106_000_000, -719_800, -719_163, -719_162, -354_286, 2_932_897, 106_000_000)
FAR_DAYS = KEPT_DAYS | dict.fromkeys(LOST_DAYS)


@pytest.mark.parametrize("text_format", [LOAD_DATA, INSERT_VALUES], ids=["load", "insert"])
@pytest.mark.parametrize("day", FAR_DAYS)
@pytest.mark.parametrize("name", ["day", "moment"])
def test_a_year_that_mysql_does_not_keep_is_refused_with_its_row(name, day, text_format) -> None:
    kind, _ = TYPES[name]
    number = day if name == "day" else day * 86_400_000_000
    values = pa.array([None, number], pa.int32() if name == "day" else pa.int64()).cast(kind)
    batch = pa.record_batch([values], names=[name])
    if (text := FAR_DAYS[day]) is not None:
        assert text.encode() in bytes(encode(batch, [plan(name)], text_format).data)
        return
    with pytest.raises(RejectedRowsError, match="MySQL keeps the years 1000 to 9999") as caught:
        encode(batch, [plan(name)], text_format)
    assert caught.value.what.startswith(f"Row 2 of a batch of 2: column {name!r} cannot store")
