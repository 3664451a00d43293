"""Which columns hold which rows; nothing here needs pypaimon."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from twophase.errors import ConfigError
from twophase.sinks.paimon.columns import Column, check_new, check_rows, refusal, text_of

ROW = {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "BIGINT"}]}


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (pa.int8(), "BIGINT"),
        (pa.int32(), "INTEGER"),
        (pa.float32(), "DOUBLE"),
        (pa.decimal128(9, 2), "DECIMAL(38, 2)"),
        (pa.large_string(), "VARCHAR(2147483647)"),
        (pa.binary(), "VARBINARY(2147483647)"),
        (pa.string(), "STRING NOT NULL"),
        (pa.timestamp("us"), "TIMESTAMP"),
        (pa.timestamp("us", "Europe/Rome"), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        (pa.list_(pa.int32()), {"type": "ARRAY", "element": "BIGINT"}),
        (pa.map_(pa.string(), pa.int8()), {"type": "MAP", "key": "STRING", "value": "INT"}),
        (pa.struct([("a", pa.int64())]), ROW),
    ],
)
def test_a_column_holds_rows(rows: pa.DataType, column: Any) -> None:
    assert refusal(rows, column) == ""


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (pa.int64(), "INT"),
        (pa.float64(), "FLOAT"),
        (pa.decimal128(9, 2), "DECIMAL(9, 1)"),
        (pa.decimal128(9, 2), "DECIMAL(8, 2)"),
        (pa.string(), "VARCHAR(9)"),
        (pa.string(), "CHAR(9)"),
        (pa.timestamp("us"), "TIMESTAMP(3)"),
        (pa.timestamp("us"), "TIMESTAMP(9)"),
        (pa.timestamp("us"), "TIMESTAMP_LTZ(6)"),
        (pa.timestamp("us", "UTC"), "TIMESTAMP(6)"),
        (pa.time64("us"), "TIME(0)"),
        (pa.string(), "VARIANT"),
        (pa.list_(pa.int32()), "INT"),
        (pa.int32(), {"type": "ARRAY", "element": "INT"}),
        (pa.list_(pa.int32()), {"type": "ARRAY", "element": "INT NOT NULL"}),
        (pa.struct([("b", pa.int64())]), ROW),
        (pa.struct([]), ROW),
    ],
)
def test_a_column_that_does_not_hold_rows_is_refused(rows: pa.DataType, column: Any) -> None:
    assert refusal(rows, column) != ""


def test_all_reasons_are_named_at_once() -> None:
    columns = [
        Column(0, "id", "INT NOT NULL"),
        Column(1, "name", "STRING"),
        Column(2, "status", "STRING", default=True),
    ]
    rows = pa.schema([("name", pa.int64()), ("NAME", pa.string())])
    with pytest.raises(ConfigError) as caught:
        check_rows(rows, columns)
    text = str(caught.value)
    for reason in (
        "column 'name' appears twice",
        "column 'NAME' is not in the table",
        "column 'name': int64 does not fit STRING; cast it",
        "column 'id' is required, and the rows lack it",
        "column 'status' has a default value, and the rows lack it",
    ):
        assert reason in text


@pytest.mark.parametrize(
    "kind", [pa.time64("us"), pa.duration("us"), pa.uint8(), pa.list_(pa.duration("us"))]
)
def test_a_new_table_has_no_column_for_other_types(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"column 'x': .* is not supported; cast it"):
        check_new(pa.schema([("x", kind)]))


def test_a_type_has_one_text() -> None:
    assert text_of("TIMESTAMP WITH LOCAL TIME ZONE") == text_of("TIMESTAMP_LTZ(6)")
    assert text_of({"type": "ARRAY NOT NULL", "element": "INT"}) == "ARRAY<INT> required"
    assert text_of(ROW) == "ROW<1 BIGINT>"
