"""Columns of type MAP and fields with any name: read by another form of the records."""

from __future__ import annotations

import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.kafka.json_oracle import row_of
from tests.sources.kafka.test_json import ITEM, LEAVES, RECORDS, WIDE, bad, block_of, decode
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.options import OnBadRecord

ODD_NAMES = ['a"b', "a\\b", "a\tb", "a\nb", "a\x00b", "%22", 'a"%22', "ä\"'", '"']
RICH = pa.schema(
    [
        ("d", pa.float64()),
        ("structs", pa.map_(pa.string(), pa.struct([one for one in WIDE if one.name != "f"]))),
        ("lists", pa.list_(pa.map_(pa.string(), pa.string()))),
        ("maps", pa.map_(pa.string(), pa.map_(pa.string(), pa.decimal128(10, 2)))),
        ('o"%', pa.struct([("i\\8", pa.int8()), ("s", pa.string())])),
    ]
)
ODD = '"o\\"%"'
SMALL = st.sampled_from(['"i\\\\8"', '"s"', '"i8"'])


def member(name: st.SearchStrategy[str], value: st.SearchStrategy[bytes]) -> Any:
    return st.tuples(name, value).map(lambda pair: b"%b:%b" % (pair[0].encode(), pair[1]))


def objects(name: st.SearchStrategy[str], value: st.SearchStrategy[bytes]) -> Any:
    return st.lists(member(name, value), max_size=2).map(lambda them: b"{%b}" % b",".join(them))


KEYS = st.sampled_from(['""', '"k"', '"key"', '"a b"', '"\\u006b"'])
MAPS = objects(KEYS, LEAVES)
FIELDS = (
    member(st.just('"structs"'), objects(KEYS, RECORDS) | LEAVES)
    | member(
        st.just('"lists"'), st.lists(MAPS, max_size=2).map(lambda all_: b"[%b]" % b",".join(all_))
    )
    | member(st.just('"maps"'), objects(KEYS, MAPS) | LEAVES)
    | member(st.just(ODD), objects(SMALL, LEAVES) | LEAVES)
    | member(st.sampled_from(['"d"', '"zz"']), LEAVES)
)
RICH_RECORDS = st.lists(FIELDS, max_size=3).map(lambda fields: b"{%b}" % b",".join(fields))


@settings(deadline=None, max_examples=700)
@given(st.lists(RICH_RECORDS, min_size=1, max_size=3))
def test_any_value_reads_in_a_map_and_under_any_name_as_it_does_elsewhere(
    values: list[bytes],
) -> None:
    expected = [row for value in values if (row := row_of(value, RICH)) is not None]
    assert repr(decode(*values, schema=RICH, drop=True)) == repr(expected)


PRICES = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.decimal128(10, 2)))])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"m":{"a":1.555}}', "m[].value: b'1.555' does not fit decimal128(10, 2)"),
        (b'{"m":{"a":1e-50}}', "does not fit decimal128(10, 2)"),
        (b'{"m":{"a":"x"}}', "does not fit decimal128(10, 2)"),
        (b'{"m":{"a":{}}}', "does not fit decimal128(10, 2)"),
        (b'{"m":{"a":1,"\\u0061":2}}', "m.a: is given twice"),
        (b'{"m":{},"\\u006d":{}}', "m: is given twice"),
        (b'{"m":[]}', "m: b'[]' is not a JSON object"),
        (b'{"m":[{"key":"a","value":1}]}', "is not a JSON object"),
        (b'{"m":"{}"}', "is not a JSON object"),
        (b'{"m":7}', "is not a JSON object"),
        (b'{"m":{"a\xff":1}}', "its value is not UTF-8"),
        (b'{"m":{"a":1}}{"m":{}}', "its value is not well-formed JSON"),
        (b'{"m":{"a":1}', "its value is not well-formed JSON"),
        (b'{"m":{"a":1,}}', "its value is not well-formed JSON"),
        (b'{"m":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "nested too deeply"),
        (b'{"m":{"a":' + b"1" * 5000 + b"}}", "does not fit decimal128(10, 2)"),
        (b'{"m":{},"zz":1NaN}', "its value is not well-formed JSON"),
        (b'{"m":{},"zz":NaN1}', "its value is not well-formed JSON"),
        (b'{"m":{},"zz":2-Infinity}', "its value is not well-formed JSON"),
        (b'{"m":{"a":NaN}}', "does not fit decimal128(10, 2)"),
        (b"[]", "its value is not one JSON object"),
        (b"", "its value is empty"),
        (None, "it has no value (a tombstone)"),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_a_map_that_does_not_fit_is_one_record_s_fault(value: bytes | None, reason: str) -> None:
    assert reason in bad(b'{"id":1}', value, schema=PRICES)
    good = [b'{"id":%d,"m":{"k":%d.5}}' % (number, number) for number in range(4)]
    found = decode(good[0], value, *good[1:3], value, good[3], schema=PRICES, drop=True)
    assert found == [{"id": n, "m": [("k", decimal.Decimal(f"{n}.50"))]} for n in range(4)]


def test_null_in_a_map_follows_the_schema() -> None:
    strict = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    schema = pa.schema([pa.field("m", strict, nullable=False)])
    assert decode(b'{"m":{}}', b'{"m":{"a":1}}', schema=schema) == [{"m": []}, {"m": [("a", 1)]}]
    for value in (b'{"m":{"a":null}}', b'{"m":null}', b"{}"):
        assert "NOT NULL" in bad(value, schema=schema)


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
@pytest.mark.parametrize("inside", [False, True])
def test_a_field_may_have_any_name(name: str, *, inside: bool) -> None:
    fields = [(name, pa.int64()), ("%22", pa.string()) if name != "%22" else ("b", pa.string())]
    other = fields[1][0]
    schema = pa.schema([("s", pa.struct(fields))] if inside else fields)
    row = {name: 7, other: "x"}
    rows = [{"s": row}] if inside else [row]
    values = [json.dumps(rows[0]).encode(), json.dumps(rows[0], ensure_ascii=False).encode()]
    assert decode(*values, schema=schema) == rows * 2
    text = json.dumps(name)
    record = f"{{{text}:1,{text}:2}}"
    twice = f'{{"s":{record}}}' if inside else record
    assert "is given twice" in bad(twice.encode(), schema=schema)


def test_keys_and_texts_are_those_of_the_record() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.string()))])
    value = '{"m":{"é\\n\\"":{ "a" : 1.50 },"😀":"\\u00e9"," ":null,"":-0.0}}'.encode()
    assert decode(value, schema=schema) == [
        {"m": [('é\n"', '{ "a" : 1.50 }'), ("😀", "é"), (" ", None), ("", "-0.0")]}
    ]


def test_constants_are_read_beside_a_map() -> None:
    schema = pa.schema([("d", pa.float64()), ("m", pa.map_(pa.string(), pa.float64()))])
    [row] = decode(b'{"d":-Infinity,"m":{"a":NaN,"NaN":1e38,"b":Infinity}}', schema=schema)
    assert repr(row) == repr(
        {"d": -float("inf"), "m": [("a", float("nan")), ("NaN", 1e38), ("b", float("inf"))]}
    )


def test_maps_of_several_blocks_behind_bytes_of_a_registry() -> None:
    decoder = JsonDecoder(PRICES, ITEM, OnBadRecord.DROP, skip_bytes=5)
    for first in (0, 10, 20):
        decoder.take(block_of(b"\0\0\0\0\1" + b'{"id":%d,"m":{"a":1.5}}' % first, b"{}", None))
        decoder.take(block_of(b'\0\0\0\0\1{"m":[]}', b"\0\0\0\0\1{}"))
    batch = decoder.batch()
    batch.validate(full=True)
    assert [row["id"] for row in batch.to_pylist()] == [0, None, 10, None, 20, None]
    assert batch.schema == PRICES
    decoder.take(block_of(b'\0\0\0\0\1{"id":1,"m":{"a":2,"b":3}}'))
    assert len(decoder.batch().to_pylist()[0]["m"]) == 2
