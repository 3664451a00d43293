"""A column has a dictionary if its values come again."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.sinks.common.test_parquet_statistics import SHAPES
from twophase.sinks.common.staging import formats
from twophase.sinks.common.staging.disk import NewFile
from twophase.sinks.common.staging.formats import Format


@pytest.mark.parametrize("for_hive", [False, True])
@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize(
    ("count", "different", "has_one"),
    [
        (20_000, 1, True),
        (20_000, 8_000, True),
        (20_000, 8_001, False),
        (20_000, 20_000, False),
        (9_999, 9_999, True),
    ],
)
def test_values_that_are_nearly_all_different_have_none(
    tmp_path: Path, for_hive: bool, path: str, count: int, different: int, has_one: bool
) -> None:
    it = SHAPES[path](pa.array([number % different for number in range(count)]))
    with NewFile(tmp_path / "file") as file:
        formats.write(Format.PARQUET, pa.table({"it": it}), file, for_hive=for_hive)
    group = pa.parquet.read_metadata(tmp_path / "file").row_group(0)
    found = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert found[path].has_dictionary_page is has_one
    assert pa.parquet.read_table(tmp_path / "file")["it"].to_pylist() == it.to_pylist()


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["", "a"]),
    "binary": (pa.binary(), [b"", b"\xff"]),
    "double": (pa.float64(), [0.0, -0.0]),
    "boolean": (pa.bool_(), [True, False]),
    "decimal": (pa.decimal128(9, 2), [Decimal("0.10"), Decimal("-1.00")]),
    "date": (pa.date32(), [datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]),
}


@pytest.mark.parametrize("name", KINDS)
def test_values_of_every_type_are_looked_at(tmp_path: Path, name: str) -> None:
    kind, values = KINDS[name]
    few = pa.array([None, *values] * 4_000, kind)
    rows = pa.table({"it": pa.chunked_array([few, few.slice(5)])})
    with NewFile(tmp_path / "file") as file:
        formats.write(Format.PARQUET, rows, file)
    column = pa.parquet.read_metadata(tmp_path / "file").row_group(0).column(0)
    assert column.has_dictionary_page is (name != "boolean")  # parquet has none of these
    assert pa.parquet.read_table(tmp_path / "file") == rows


NESTED: list[tuple[pa.DataType, Any]] = [
    (pa.struct([("b", pa.int64())]), {"b": 1}),
    (pa.struct([("b", pa.string())]), {"b": "1"}),
    (pa.list_(pa.int64()), [1, 2]),
    (pa.list_(pa.int64(), 2), [1, 2]),
    (pa.map_(pa.string(), pa.int64()), [("b", 1)]),
]


@pytest.mark.parametrize(("kind", "value"), NESTED, ids=[str(kind) for kind, _ in NESTED])
@pytest.mark.parametrize("other", ["a.b", "a.list.element", "a.key_value.value"])
def test_two_columns_may_have_one_path(
    tmp_path: Path, kind: pa.DataType, value: Any, other: str
) -> None:
    ids = [str(number) for number in range(10_000)]
    rows = pa.table({other: ids, "a": pa.array([value for _ in ids], kind)})
    with NewFile(tmp_path / "file") as file:
        formats.write(Format.PARQUET, rows, file)
    assert pa.parquet.read_table(tmp_path / "file").equals(rows)
