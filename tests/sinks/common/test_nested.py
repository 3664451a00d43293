"""Nested columns are read from a file of each format as they were given, however they lie in
memory: cut from longer ones, or with values below a null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.sinks.common.staging.disk import NewFile
from twophase.sinks.common.staging.formats import Format, write
from twophase.sinks.common.staging.nested import without_hidden_values

LEAVES = (pa.int64(), pa.string(), pa.binary(), pa.bool_(), pa.float64(), pa.decimal128(30, 2))
NESTED = (Format.PARQUET, Format.ORC, Format.JSON)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda kinds: pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])
    )
    maps = inner.map(lambda kind: pa.map_(pa.string(), kind))
    return structs | inner.map(pa.list_) | maps


KINDS = nested(st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4))


class Values:
    """Makes arrays in which every value is another one, as far as its type has so many."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._made = 0

    def array(self, kind: pa.DataType, length: int) -> pa.Array:
        """Return an array with nulls, and with values below them."""
        cut = self._draw(st.integers(0, 2))
        return self._array(kind, length + cut).slice(cut)

    def _array(self, kind: pa.DataType, length: int) -> pa.Array:
        nulls = self._draw(st.lists(st.booleans(), min_size=length, max_size=length))
        if not pa.types.is_nested(kind):
            return self._leaves(kind, nulls)
        valid = pa.py_buffer(np.packbits(~np.array(nulls, np.bool_), bitorder="little"))
        fields = [kind.field(number) for number in range(kind.num_fields)]
        if pa.types.is_struct(kind):
            children = [self.array(field.type, length) for field in fields]
            return pa.Array.from_buffers(kind, length, [valid], children=children)
        ends = np.zeros(length + 1, np.int32)
        lengths = self._draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
        np.cumsum(lengths, out=ends[1:])
        buffers = [valid, pa.py_buffer(ends)]
        children = [self._entries(field.type, int(ends[-1]), kind) for field in fields]
        return pa.Array.from_buffers(kind, length, buffers, children=children)

    def _entries(self, kind: pa.DataType, length: int, of: pa.DataType) -> pa.Array:
        if not pa.types.is_map(of):
            return self.array(kind, length)
        keys = self._leaves(pa.string(), [False] * length)
        fields = [of.key_field, of.item_field]
        return pa.StructArray.from_arrays([keys, self.array(of.item_type, length)], fields=fields)

    def _leaves(self, kind: pa.DataType, nulls: Sequence[bool]) -> pa.Array:
        numbers = np.arange(self._made, self._made + len(nulls))
        self._made += len(nulls)
        if pa.types.is_boolean(kind):
            numbers = numbers % 2
        texts = pa.array([str(number) for number in numbers], pa.string())
        found = texts if pa.types.is_string(kind) else pa.array(numbers).cast(pa.int64())
        found = texts.cast(kind) if pa.types.is_binary(kind) else found.cast(kind, safe=False)
        mask = pa.array(list(nulls), pa.bool_())
        return pa.compute.if_else(mask, pa.scalar(None, kind), found)


@st.composite
def columns(draw: st.DrawFn) -> pa.ChunkedArray:
    kind, values = draw(KINDS), Values(draw)
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=2))
    return pa.chunked_array([values.array(kind, length) for length in lengths], kind)


def read_back(kind: Format, column: pa.ChunkedArray, *, for_hive: bool) -> list[Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        with NewFile(path) as file:
            write(kind, pa.table({"x": column}), file, for_hive=for_hive)
        if kind is Format.JSON:
            return [json.loads(line)["x"] for line in path.read_text().splitlines()]
        read = pa.orc.read_table if kind is Format.ORC else pa.parquet.read_table
        found: list[Any] = read(path).column("x").to_pylist(maps_as_pydicts="strict")
        return found


@pytest.mark.parametrize("for_hive", [False, True])
@pytest.mark.parametrize("kind", [Format.PARQUET, Format.ORC])
@given(columns())
def test_a_nested_column_is_read_as_it_was_given(
    kind: Format, for_hive: bool, column: pa.ChunkedArray
) -> None:
    given_ = column.to_pylist(maps_as_pydicts="strict")
    assert read_back(kind, column, for_hive=for_hive) == given_


@given(columns())
def test_json_has_the_values_that_a_row_has(column: pa.ChunkedArray) -> None:
    same = pa.array(column.to_pylist(), column.type)
    expected = read_back(Format.JSON, pa.chunked_array([same]), for_hive=False)
    assert read_back(Format.JSON, column, for_hive=False) == expected


@given(columns())
def test_only_columns_with_hidden_values_are_copied(column: pa.ChunkedArray) -> None:
    bare = without_hidden_values(pa.table({"x": column, "y": column.is_null()}))
    bare.validate(full=True)
    assert bare.column("x").to_pylist() == column.to_pylist()
    assert without_hidden_values(bare) is bare


def test_what_spark_sends_is_not_copied() -> None:
    """Below its nulls are nulls."""
    inner = pa.StructArray.from_arrays(
        [pa.array([1, None, None]), pa.array(["a", None, "c"])],
        names=["n", "t"],
        mask=pa.array([False, True, False]),
    )
    rows = pa.table(
        {
            "struct": inner,
            "list": pa.array([[1], None, []], pa.list_(pa.int64())),
            "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "plain": pa.array([1, 2, 3, 4]).slice(1),
        }
    )
    assert without_hidden_values(rows) is rows


def test_a_file_of_many_batches_of_the_writer_keeps_its_values() -> None:
    length = 5_000
    child = pa.StructArray.from_arrays(
        [pa.array(range(length))], names=["z"], mask=pa.array([n % 3 == 0 for n in range(length)])
    )
    column = pa.StructArray.from_arrays([child], names=["x"]).slice(7)
    found = read_back(Format.ORC, pa.chunked_array([column]), for_hive=False)
    assert found == column.to_pylist()
