"""A table that is refused is not made, and no table is made one that is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from twophase.errors import ConfigError
from twophase.sinks.delta.ddl import create_table
from twophase.sinks.delta.features import refusal_of_column
from twophase.sinks.delta.layout import TableLayout
from twophase.sinks.delta.options import DeltaOptions
from twophase.sinks.delta.preflight import _check_columns

VARIANTS: list[DataType] = [
    VariantType(),
    ArrayType(VariantType()),
    MapType(StringType(), ArrayType(VariantType())),
    StructType([StructField("id", LongType()), StructField("more", VariantType())]),
]


@pytest.mark.parametrize("kind", VARIANTS)
def test_a_table_with_a_variant_is_not_created(kind: DataType) -> None:
    no_jvm: Any = None  # it is not asked
    rows = StructType([StructField("id", LongType()), StructField("v", kind)])
    with pytest.raises(ConfigError, match=r"column 'v': a VARIANT is not supported") as raised:
        create_table(no_jvm, "orders", rows, [])
    assert "Nothing was written" in str(raised.value)


@pytest.mark.parametrize("kind", VARIANTS)
def test_no_variant_is_merged_into_a_table(kind: DataType) -> None:
    before = StructType([StructField("id", LongType())])
    layout = TableLayout(tuple(before.jsonValue()["fields"]), (), (), {})
    snapshot: Any = SimpleNamespace(schema=before.json(), layout=layout)
    log: Any = SimpleNamespace(storage=SimpleNamespace(root="/lake/orders"))
    options = DeltaOptions(path="/lake/orders", merge_schema=True)
    with pytest.raises(ConfigError, match=r"column 'v': a VARIANT is not supported"):
        _check_columns(log, snapshot, options, StructType([*before, StructField("v", kind)]))
    _check_columns(log, snapshot, options, StructType([*before, StructField("v", LongType())]))


@pytest.mark.parametrize("kind", [LongType(), ArrayType(LongType()), StructType([])])
def test_other_columns_may_be_added(kind: DataType) -> None:
    assert refusal_of_column(kind) == ""
