"""Rows as records: what JSON says, and what it cannot say."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from twophase.errors import RejectedRowsError
from twophase.sinks.kafka.rows import JsonRecords, KafkaRecord, RawRecords

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
ENTRIES = pa.map_(pa.string(), pa.timestamp("us", "UTC"))


def records(kind: pa.DataType, *values: Any, key: str | None = None) -> list[KafkaRecord]:
    """The records of rows of one column."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], ["x"])
    return [*JsonRecords(key).records(batch)]


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (pa.int64(), -(2**63), "-9223372036854775808"),
        (pa.float64(), 5e-324, "5e-324"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.decimal128(38, 2), Decimal("9" * 36 + ".10"), "9" * 36 + ".10"),
        (pa.string(), '\t"\\\u2028🚀', json.dumps('\t"\\\u2028🚀', ensure_ascii=False)),
        (pa.binary(), b"\x00\xff", '"AP8="'),
        (pa.date32(), date(1, 1, 1), '"0001-01-01"'),
        (pa.timestamp("us", "America/New_York"), MOMENT, '"2026-01-31T12:00:00.000001Z"'),
        (pa.timestamp("us"), MOMENT.replace(tzinfo=None), '"2026-01-31T12:00:00.000001"'),
        (pa.list_(ENTRIES), [[("a", MOMENT)], None], '[{"a":"2026-01-31T12:00:00.000001Z"},null]'),
        (pa.struct([("m", ENTRIES)]), {"m": [("a", None)]}, '{"m":{"a":null}}'),
        (pa.map_(pa.string(), pa.list_(pa.int8())), [("a", [1])], '{"a":[1]}'),
        (pa.list_(pa.int64()), [], "[]"),
        (pa.string(), None, "null"),
    ],
    ids=str,
)
def test_json_has_the_whole_value(kind: pa.DataType, value: Any, written: str) -> None:
    [record] = records(kind, value)
    assert record.value == f'{{"x":{written}}}'.encode()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), math.nan),
        (pa.float32(), -math.inf),
        (pa.list_(pa.float64()), [1.0, math.nan]),
        (pa.struct([("m", pa.map_(pa.string(), pa.float64()))]), {"m": [("a", math.inf)]}),
        (pa.date32(), 2_932_897),
        (pa.list_(pa.timestamp("us")), [253_402_300_800_000_000]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2), ("a", 3)]),
        (pa.list_(ENTRIES), [[("a", MOMENT), ("a", None)]]),
    ],
    ids=str,
)
def test_a_value_without_json_is_refused_and_names_its_column(
    kind: pa.DataType, value: Any
) -> None:
    good = records(kind, None)
    assert good[0].value == b'{"x":null}'
    with pytest.raises(RejectedRowsError, match=r"\bx\b"):
        records(kind, value)


def test_text_that_is_no_text_is_refused() -> None:
    damaged = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    batch = pa.RecordBatch.from_arrays([damaged], ["x"])
    with pytest.raises(RejectedRowsError, match="UTF-8"):
        [*JsonRecords(None).records(batch)]


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        (pa.string(), "Zoë", "Zoë".encode()),
        (pa.binary(), b"\x00", b"\x00"),
        (pa.int64(), -7, b"-7"),
        (pa.string(), "", b""),
        (pa.string(), None, None),
    ],
)
def test_a_key_is_text_bytes_or_digits(kind: pa.DataType, value: Any, key: bytes | None) -> None:
    [record] = records(kind, value, key="x")
    assert record.key == key


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Amsterdam", "Africa/Monrovia", "GMT+1", "Z"])
def test_a_moment_is_the_same_whatever_the_zone_of_the_session(zone: str, inside: bool) -> None:
    """Amsterdam was 19 minutes and 32 seconds ahead in 1930; Java knows `GMT+1`, pyarrow not."""
    at = pa.array(["1930-01-01T12:00:00Z"]).cast(TIME).cast(pa.timestamp("us", zone))
    column = pa.StructArray.from_arrays([at], ["at"]) if inside else at
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    [record] = JsonRecords(None).records(batch)
    text = b'"1930-01-01T12:00:00Z"'
    assert record.value == (b'{"x":{"at":%b}}' if inside else b'{"x":%b}') % text


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def raw(name: str, kind: pa.DataType, *values: Any) -> list[KafkaRecord]:
    """The records of rows with one part beside their values."""
    columns = [pa.array([b"v"] * len(values)), pa.array(values, kind)]
    batch = pa.RecordBatch.from_arrays(columns, ["value", name])
    return [*RawRecords().records(batch)]


@pytest.mark.parametrize(
    ("name", "kind", "good", "bad", "says"),
    [
        ("partition", pa.int32(), 0, -1, "partition is -1 in row 3 of a batch"),
        ("partition", pa.int32(), 2**31 - 1, -(2**31), "partition is -2147483648 in row 3"),
        ("timestamp", TIME, 1_000, 999, "timestamp is '1970-01-01 00:00:00.000999Z' in row 3"),
        ("timestamp", TIME, 1_000, 0, "writes the first millisecond of 1970 as now"),
        ("timestamp", TIME, 1_000, -1, "timestamp is '1969-12-31 23:59:59.999999Z'"),
        ("timestamp", pa.timestamp("us"), 1_000, -(2**40), "timestamp is '1969-12-19"),
        ("headers", HEADERS, [], [None], "header of a record has no key"),
        ("headers", HEADERS, [{"key": "", "value": None}], [{"key": None, "value": b""}], "no key"),
        (
            "headers",
            HEADERS,
            [{"key": "a b", "value": b"\0"}],
            [{"key": "a\0b", "value": b""}],
            r"'a\\x00b': librdkafka cuts it at the NUL character",
        ),
    ],
)
def test_a_part_that_librdkafka_would_change_is_refused_by_name(
    name: str, kind: pa.DataType, good: Any, bad: Any, says: str
) -> None:
    assert len(raw(name, kind, None, good)) == 2
    with pytest.raises(RejectedRowsError, match=says):
        raw(name, kind, None, good, bad)
