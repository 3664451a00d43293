"""value.format=json: every record is exactly one row of the schema, or it is named."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import traceback
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.kafka.json_oracle import row_of
from twophase.errors import BadRecordError, ConfigError, from_text
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import OnBadRecord

ITEM = OffsetRange("kafka", "orders", "id", 3, 0, 10**6)
UTC = pa.timestamp("us", tz="UTC")
FLAT = pa.schema([("a", pa.int64()), ("b", pa.string())])
WIDE = pa.schema(
    [
        ("flag", pa.bool_()),
        ("i8", pa.int8()),
        ("i32", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("dec", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("at", UTC),
        ("local", pa.timestamp("us")),
        ("items", pa.list_(pa.field("element", pa.int32()))),
        ("who", pa.struct([pa.field("name", pa.string()), pa.field("born", pa.date32())])),
        ("many", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.decimal128(5, 1))])))),
    ]
)


def block_of(*values: bytes | None, first: int = 100) -> Block:
    count = len(values)
    return Block(
        values=list(values),
        offsets=range(first, first + count),
        keys=[b"k%d" % i for i in range(count)],
        timestamps_ms=[1_700_000_000_000 + i for i in range(count)],
    )


def decode(
    *values: bytes | None, schema: pa.Schema = FLAT, drop: bool = False
) -> list[dict[str, Any]]:
    decoder = JsonDecoder(schema, ITEM, OnBadRecord.DROP if drop else OnBadRecord.FAIL)
    decoder.take(block_of(*values))
    batch = decoder.batch()
    batch.validate(full=True)
    assert batch.schema == schema
    return list(batch.to_pylist())


def bad(*values: bytes | None, schema: pa.Schema = FLAT) -> str:
    with pytest.raises(BadRecordError) as caught:
        decode(*values, schema=schema)
    return str(caught.value)


def test_each_record_is_one_row() -> None:
    assert decode(b'{"a":1,"b":"x"}', b'{"b":"y","a":2}') == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_missing_and_null_fields_are_null_and_others_are_ignored() -> None:
    assert decode(b"{}", b'{"a":null,"zz":[1,{"a":2}]}') == [{"a": None, "b": None}] * 2


def test_whitespace_around_and_inside_a_value_means_nothing() -> None:
    assert decode(b' \t{"a":1}\r\n', b'{\n"a"\n:\n2\n}\n\n') == [
        {"a": 1, "b": None},
        {"a": 2, "b": None},
    ]


def test_a_gap_in_the_offsets_does_not_shift_the_name_of_a_bad_record() -> None:
    decoder = JsonDecoder(FLAT, ITEM, OnBadRecord.FAIL)
    decoder.take(block_of(b"{}", b"{}"))
    block = block_of(b"{}", b"{", b"{}")
    block.offsets = [200, 235, 236]
    decoder.take(block)
    with pytest.raises(BadRecordError, match="offset 235 "):
        decoder.batch()


NOT_ONE_OBJECT = [
    None,
    b"",
    b" ",
    b"\n",
    b"null",
    b"[]",
    b"5",
    b'"x"',
    b"{",
    b"}",
    b"}{",
    b'{"a":1',
    b'"a":1}',
    b'{"a":1}}',
    b'{"a":1}{"a":2}',
    b'{"a":1} {"a":2}',
    b'{"a":1}\n{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1},"b":"x"',
    b'{"a":1}garbage',
    b'{"a":1}//{}',
    b'{"a":1}\x00',
    b'{"a":1}\x00}',
    b'\x00{"a":1}',
    b'{"a":1}\x00{"a":2}',
    b'{"b":"\x00"}',
    b'{"b":"x\ny"}',
    b'{"b":"}\n{"}',
    b'\xef\xbb\xbf{"a":1}',
    b"{'a':1}",
    b'{"a":1,}',
    b"{a:1}",
    b'{"a":}',
    b'{"b":"}',
    b'{"b":"\\}',
    b'{"b":"\xff"}',
    b'{"b":"\xed\xa0\x80"}',
    b'{"b":"\\ud800"}',
    b'{"b":"\\x41"}',
]
DOES_NOT_FIT: list[bytes | None] = [
    b'{"a":"1"}',
    b'{"a":1.5}',
    b'{"a":1.0}',
    b'{"a":9223372036854775808}',
    b'{"a":true}',
    b'{"a":{}}',
    b'{"a":[1]}',
    b'{"a":1,"a":2}',
    b'{"a":1,"b":"x","a":1}',
]


@pytest.mark.parametrize("value", NOT_ONE_OBJECT + DOES_NOT_FIT, ids=repr)
def test_a_bad_record_is_named_wherever_it_stands(value: bytes | None) -> None:
    good = b'{"a":7,"b":"good"}'
    for before in (0, 1, 5):
        message = bad(*[good] * before, value, *[good] * 3)
        assert (
            f"the record at offset {100 + before} of orders-3 (topic 'orders', partition 3)"
            in message
        )
        assert "\n" not in message


@pytest.mark.parametrize("value", NOT_ONE_OBJECT + DOES_NOT_FIT, ids=repr)
def test_dropping_leaves_out_the_bad_records_and_no_other(value: bytes | None) -> None:
    values = [b'{"a":0}', value, b'{"a":2}', b'{"a":3}', value, value]
    assert [row["a"] for row in decode(*values, drop=True)] == [0, 2, 3]


@pytest.mark.parametrize(
    "values",
    [
        # each pair gives as many rows as records, but not one row a record
        (b'{"a":1}{"a":2}', b""),
        (b'{"a":1}{"a":2}', b" "),
        (b'{"a":1}{"a":2}', b'{"a":3}\x00', b'{"a":4}'),
        (b'{"a":1}{"a":2}', b'{"zz":', b'{"a":3}}'),
        (b'{"zz":', b'{"a":1}}{"a":2}'),
        (b'{"zz":[', b'{}]}{"a":2}'),
        (b'{"zz":[{}', b',{"a":1}]}{"a":2}'),
        (b'{"a":1} {"zz":', b'{"a":2}}'),
        (b'{"b":"', b'"}{"a":2}'),
        (b'{"a":1}{"b":"', b'"}'),
        (b'{"a":1}{"a":1}\x00}', b'{"a":1}'),
    ],
    ids=repr,
)
def test_records_that_add_up_to_the_right_number_of_rows_are_still_distinguished(
    values: tuple[bytes, ...],
) -> None:
    bad(*values)
    bad(b'{"a":0}', *values, b'{"a":9}')


def test_the_first_bad_record_is_named_and_not_a_later_one() -> None:
    values = [b'{"a":1}'] * 1000
    values[700] = b'{"a":"x"}'
    values[333] = b"{"
    assert "offset 433 " in bad(*values)


def test_dropped_records_are_counted_and_the_first_is_logged() -> None:
    decoder = JsonDecoder(FLAT, ITEM, OnBadRecord.DROP)
    assert decoder.notes() == []
    decoder.take(block_of(b'{"a":1}', b"x", b'{"a":2}', b'{"a":"y"}'))
    assert decoder.batch().num_rows == 2
    decoder.take(block_of(b"z", first=200))
    assert decoder.batch().num_rows == 0
    assert len(decoder.notes()) == 1
    assert "3 records" in decoder.notes()[0]
    assert "offset 101: its value is not one JSON object" in decoder.notes()[0]


def test_blocks_are_joined_into_one_batch_and_bad_ones_do_not_touch_their_neighbours() -> None:
    decoder = JsonDecoder(METADATA, ITEM, OnBadRecord.DROP)
    for first in (100, 200, 300):
        decoder.take(block_of(b'{"a":1}', b"x" if first == 200 else b"{}", b'{"a":3}', first=first))
    batch = decoder.batch()
    assert batch.column("kafka_offset").to_pylist() == [100, 101, 102, 200, 202, 300, 301, 302]
    assert decoder.batch().num_rows == 0


def test_a_block_of_bad_records_only_gives_an_empty_batch() -> None:
    assert decode(b"", None, b"x", drop=True) == []


@pytest.mark.usefixtures("worker")
def test_the_error_survives_as_text() -> None:
    with pytest.raises(BadRecordError) as caught:
        decode(b'{"a":"x"}')
    found = from_text("".join(traceback.format_exception(caught.value)))
    assert type(found) is BadRecordError
    assert str(found) == str(caught.value)


def test_every_type_is_exactly_sparks() -> None:
    row = decode(
        b'{"flag":true,"i8":-128,"i32":5,"f":0.5,"d":1e300,"dec":12345678.9,'
        b'"s":"\\u00e9\\ud83d\\ude00",'
        b'"day":"2024-02-29","at":"2024-01-01T00:00:00.5+02:00","local":"2024-01-01 '
        b'10:00:00","items":[1,null],'
        b'"who":{"name":null,"born":"1999-12-31"},"many":[{"x":1.5},null,{}]}',
        schema=WIDE,
    )[0]
    assert row == {
        "flag": True,
        "i8": -128,
        "i32": 5,
        "f": 0.5,
        "d": 1e300,
        "dec": decimal.Decimal("12345678.90"),
        "s": "é😀",
        "day": dt.date(2024, 2, 29),
        "at": dt.datetime(2023, 12, 31, 22, 0, 0, 500_000, tzinfo=dt.UTC),
        "local": dt.datetime(2024, 1, 1, 10, 0),
        "items": [1, None],
        "who": {"name": None, "born": dt.date(1999, 12, 31)},
        "many": [{"x": decimal.Decimal("1.5")}, None, {"x": None}],
    }


@pytest.mark.parametrize(
    "value",
    [
        b'{"i8":128}',
        b'{"i32":2147483648}',
        b'{"f":1e39}',
        b'{"d":1e400}',
        b'{"dec":1.555}',
        b'{"dec":100000000}',
        b'{"dec":"x"}',
        b'{"day":"2024-02-30"}',
        b'{"day":"0000-00-00"}',
        b'{"day":19000}',
        b'{"at":"2024-02-30T00:00:00Z"}',
        b'{"at":1704067200}',
        b'{"at":"2024-01-01T00:00:00.123456789Z"}',
        b'{"local":"2024-01-01T00:00:00Z"}',
        b'{"items":[1,"2"]}',
        b'{"items":5}',
        b'{"who":{"born":"x"}}',
        b'{"who":{"name":"a","name":"b"}}',
        b'{"many":[{"x":99999.9}]}',
        b'{"s":"\xff"}',
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_its_type_is_a_bad_record(value: bytes) -> None:
    assert "offset 101 " in bad(b"{}", value, b"{}", schema=WIDE)


def test_every_batch_has_the_schema_also_the_empty_and_the_all_null_one() -> None:
    assert decode(b"{}", schema=WIDE) == [dict.fromkeys(WIDE.names)]
    assert decode(b"x", schema=WIDE, drop=True) == []


def test_not_null_columns_refuse_null_and_missing() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            pa.field("o", pa.struct([pa.field("x", pa.int32(), nullable=False)])),
            pa.field("l", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ]
    )
    assert decode(
        b'{"a":1}', b'{"a":2,"o":{"x":1},"l":[1]}', b'{"a":3,"o":null,"l":null}', schema=schema
    ) == [
        {"a": 1, "o": None, "l": None},
        {"a": 2, "o": {"x": 1}, "l": [1]},
        {"a": 3, "o": None, "l": None},
    ]
    for value in (
        b"{}",
        b'{"a":null}',
        b'{"a":1,"o":{}}',
        b'{"a":1,"o":{"x":null}}',
        b'{"a":1,"l":[null]}',
    ):
        assert "NOT NULL" in bad(value, schema=schema)
    assert [row["a"] for row in decode(b"{}", b'{"a":5}', schema=schema, drop=True)] == [5]


X_STRUCT = pa.struct([("x", pa.string())])
METADATA = pa.schema(
    [
        ("kafka_topic", pa.string()),
        ("a", pa.int64()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", UTC),
        ("kafka_key", pa.binary()),
    ]
)


def test_columns_of_the_record_itself_are_filled_from_it_and_not_from_the_value() -> None:
    rows = decode(b'{"a":1,"kafka_offset":"liar"}', b"bad", b'{"a":3}', schema=METADATA, drop=True)
    assert rows[1] == {
        "kafka_topic": "orders",
        "a": 3,
        "kafka_partition": 3,
        "kafka_offset": 102,
        "kafka_timestamp": dt.datetime.fromtimestamp(1_700_000_000.002, dt.UTC),
        "kafka_key": b"k2",
    }
    assert [row["kafka_offset"] for row in rows] == [100, 102]


def test_a_key_read_as_text_must_be_text() -> None:
    schema = pa.schema([("a", pa.int64()), ("kafka_key", pa.string())])
    block = block_of(b'{"a":1}', b'{"a":2}')
    decoder = JsonDecoder(schema, ITEM, OnBadRecord.FAIL)
    decoder.take(block)
    assert decoder.batch().column("kafka_key").to_pylist() == ["k0", "k1"]
    block.keys = [None, b"\xff"]
    decoder.take(block)
    with pytest.raises(BadRecordError, match="offset 101 "):
        decoder.batch()


TO_STRING = "give it the type STRING, which keeps the raw text of objects and lists"
ONE_OF_THEM = "take one of them out of the schema."
OUT_OF_IT = "or take the column out of the schema."
TO_TEXT_KEYS = "give the keys the type STRING, and convert them with transform_keys."
KEYED = [("a", pa.map_(pa.string(), pa.int64()))]
A, TEXT = ("a", pa.int64()), [("a", pa.string())]


@pytest.mark.parametrize(
    ("schema", "remedy", "followed"),
    [
        ([("a", pa.binary())], TO_STRING, TEXT),
        ([("a", pa.map_(pa.string(), pa.binary()))], TO_STRING, TEXT),
        ([("a", pa.list_(pa.binary()))], TO_STRING, [("a", pa.list_(pa.string()))]),
        ([("a", pa.map_(pa.int32(), pa.int64()))], TO_TEXT_KEYS, KEYED),
        ([("a", pa.list_(pa.map_(pa.int32(), pa.int64())))], TO_TEXT_KEYS, KEYED),
        ([("a", pa.struct([("x", pa.binary())]))], TO_STRING, [("a", X_STRUCT)]),
        ([("a", pa.duration("us"))], TO_STRING, TEXT),
        (
            [("a", pa.struct([("x", pa.int64()), ("x", pa.string())]))],
            ONE_OF_THEM,
            [("a", X_STRUCT)],
        ),
        (
            [A, ("kafka_offset", pa.string())],
            "the type BIGINT, ",
            [A, ("kafka_offset", pa.int64())],
        ),
        ([A, ("kafka_offset", pa.string())], OUT_OF_IT, [A]),
        (
            [A, ("kafka_timestamp", pa.int64())],
            "give it the type TIMESTAMP, ",
            [A, ("kafka_timestamp", UTC)],
        ),
        (
            [A, ("kafka_key", pa.int64())],
            "give it the type BINARY or STRING, ",
            [A, ("kafka_key", pa.binary())],
        ),
        ([("kafka_offset", pa.int64())], "", [A, ("kafka_offset", pa.int64())]),
        ([A, A], "", [A]),
    ],
    ids=str,
)
def test_schemas_that_cannot_be_read_are_refused(
    schema: list[Any], remedy: str, followed: list[Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        JsonDecoder(pa.schema(schema), ITEM, OnBadRecord.FAIL)
    assert remedy in caught.value.remedy
    [row] = decode(b"{}", schema=pa.schema(followed))
    assert [*row] == [name for name, _ in followed]


@pytest.mark.parametrize("text", [b"NaN", b"-Infinity", b"1.5", b"[NaN]", b'{"x":1}'])
def test_raw_text_beside_a_constant_is_refused_with_what_to_do(text: bytes) -> None:
    schema = pa.schema([("d", pa.float64()), ("s", pa.string())])
    assert "beside NaN or Infinity each STRING has to be in quotes" in bad(
        b'{"d":Infinity,"s":%b}' % text, schema=schema
    )
    [row] = decode(b'{"d":Infinity,"s":"x"}', schema=schema)
    assert row["s"] == "x"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"a":%b}', "does not fit int64"),
        (b'{"a":"x","zz":%b}', "does not fit int64"),
        (b'{"a":1,"a":2,"zz":%b}', "is given twice"),
    ],
)
def test_a_number_with_more_digits_than_python_converts_is_one_record_s_fault(
    value: bytes, reason: str
) -> None:
    long = value % (b"1" * 5000)
    assert reason in bad(b"{}", long)
    assert decode(b'{"a":1}', long, b'{"a":2}', drop=True) == [
        {"a": 1, "b": None},
        {"a": 2, "b": None},
    ]


def test_a_deeply_nested_value_does_not_break_the_process() -> None:
    deep = b'{"zz":' + b"[" * 500_000 + b"]" * 500_000 + b',"a":1}'
    assert decode(deep) == [{"a": 1, "b": None}]
    values = [deep, b'{"a":2}', b'{"b":3}', deep.replace(b"1", b'"x"'), deep + b"}"]
    assert [row["a"] for row in decode(*values, drop=True)] == [1, 2, None]


SCALARS = (
    st.none()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=5)
    | st.booleans()
    | st.floats(allow_nan=False)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, max_size=3).map(
    lambda o: json.dumps(o).encode()
)
PIECES = [
    b"{",
    b"}",
    b'"',
    b":",
    b",",
    b"[",
    b"]",
    b"\n",
    b" ",
    b"\x00",
    b"\\",
    b"1",
    b'"a"',
    b'"a":1',
    b"{}",
    b"null",
]
NOISE = st.lists(st.sampled_from(PIECES), max_size=10).map(b"".join)


@settings(deadline=None, max_examples=300)
@given(st.lists(OBJECTS | NOISE, min_size=1, max_size=6))
def test_any_block_of_records_reads_as_each_record_alone(values: list[bytes]) -> None:
    expected = [row for value in values if (row := row_of(value, FLAT)) is not None]
    assert decode(*values, drop=True) == expected


NUMBERS = [b"0", b"-0", b"127", b"128", b"-128", b"-129", b"2147483648", b"1.0", b"1.5", b"-2.25",
           b"1.005", b"99999.9", b"12345678.9", b"123456789", b"1e2", b"2.5E+1", b"1e-1", b"1e39",
           b"1e400", b"NaN", b"-Infinity", b"9223372036854775808"]  # fmt: skip
TIMES = [b'"2024-02-29"', b'"2023-02-29"', b'"2024-12-31T10"', b'"2024-01-01 10:30"',
         b'"2024-01-01T10:00:00Z"', b'"2024-01-01T10:00:00.5+02:00"', b'"2024-06-30T23:59:60Z"',
         b'"2024-01-01T10:00:00.1234560000"', b'"2024-01-01T10:00:00.1234567Z"', b'"2024-04-31"',
         b'"1970-01-01 00:00:00-0130"', b'"2024-01-01T24:00:00"', b'"20240101"']  # fmt: skip
OTHERS = [b"null", b"true", b'""', b'"x"', b'"\\u00e9\\ud83d\\ude00"', b'"\\udc00"', b'"\xff"',
          b"{}", b"[]", b'{"name":"n"}',
          b'{"name":{"x": 1.50},"born":"1999-12-31"}', b'{"name":1,"name":2}',
          b'{"born":"1999-02-30"}', b"[1,null,2]", b'[1,"2"]', b'[{"x":1.5},null,{}]',
          b'[{"x":99999.9}]', b'[{"x":1,"x":1}]', b"[1,", b"[ 1 , {} ]"]  # fmt: skip
LEAVES = st.sampled_from(NUMBERS + TIMES + OTHERS)
FIELDS = st.tuples(st.sampled_from([*WIDE.names, "zz"]), LEAVES).map(
    lambda pair: b'"%s":%s' % (pair[0].encode(), pair[1])
)
RECORDS = st.lists(FIELDS, max_size=3).map(lambda fields: b"{%s}" % b",".join(fields))


@settings(deadline=None, max_examples=1500)
@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_any_value_of_any_type_reads_in_a_block_as_it_does_alone(values: list[bytes]) -> None:
    expected = [row for value in values if (row := row_of(value, WIDE)) is not None]
    assert comparable(decode(*values, schema=WIDE, drop=True)) == comparable(expected)


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with floats as text, in the width of the column: NaN is not equal to itself."""
    return [row | {"f": str(np.float32(row["f"])), "d": str(row["d"])} for row in rows]
