"""Which types are the same to readers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from twophase.sinks.common.staging.layout_check import same_type

PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("found", "is_same"),
    [
        (pa.struct([("X", pa.int64()), ("y", pa.large_string())]), True),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), False),
        (pa.struct([("y", pa.string()), ("x", pa.int64())]), False),
        (pa.struct([("x", pa.int64())]), False),
        (pa.struct([("x", pa.int32()), ("y", pa.string())]), False),
    ],
)
def test_fields_of_structs_are_compared_by_name_at_every_depth(
    found: pa.DataType, is_same: bool
) -> None:
    assert same_type(found, PAIR) is is_same
    assert same_type(pa.list_(pa.field("item", found)), pa.list_(pa.field("element", PAIR))) is (
        is_same
    )
    assert same_type(pa.map_(pa.string(), found), pa.map_(pa.string(), PAIR)) is is_same
    assert same_type(pa.struct([("s", found)]), pa.struct([("s", PAIR)])) is is_same


def test_a_list_is_no_map() -> None:
    text = pa.string()
    assert not same_type(pa.list_(text), pa.map_(text, text))
    assert not same_type(pa.map_(text, text), pa.struct([("key", text), ("value", text)]))
