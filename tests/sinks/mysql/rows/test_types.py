"""A type fits into a column, or it is refused by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column


def column(text: str, **changes) -> Column:
    """A column as the server describes it, from its declaration."""
    data_type, _, arguments = text.split(" ")[0].partition("(")
    numbers = [int(number) for number in arguments.rstrip(")").split(",") if number.isdigit()]
    known: dict[str, object] = {"name": "c", "data_type": data_type, "column_type": text}
    if data_type == "decimal":
        known |= {"precision": numbers[0], "scale": numbers[1]}
    elif data_type in ("float", "double"):
        known |= {"scale": numbers[1] if numbers else None}
    elif data_type in ("datetime", "timestamp", "time"):
        known |= {"fraction_digits": numbers[0] if numbers else 0}
    elif data_type in ("enum", "set"):
        known |= {"collation": "utf8mb4_bin"}
    elif data_type == "bit":
        known |= {"precision": numbers[0]}
    elif numbers:
        known |= {"length": numbers[0]}
    return Column(**{**known, **changes})


FITS = [
    (pa.int8(), "tinyint(4)"),
    (pa.int16(), "smallint(6)"),
    (pa.int32(), "int(11)"),
    (pa.int64(), "bigint(20)"),
    (pa.int64(), "bigint(20) unsigned"),
    (pa.int64(), "int(10) unsigned"),
    (pa.int32(), "int"),
    (pa.int32(), "bigint"),
    (pa.uint8(), "smallint"),
    (pa.uint32(), "bigint"),
    (pa.uint64(), "bigint unsigned"),
    (pa.uint32(), "int unsigned"),
    (pa.int64(), "int"),
    (pa.int32(), "smallint"),
    (pa.int64(), "smallint unsigned"),
    (pa.uint64(), "bigint"),
    (pa.uint32(), "int"),
    (pa.int8(), "mediumint(8) unsigned zerofill"),
    (pa.int64(), "double"),
    (pa.int32(), "float"),
    (pa.int32(), "bit(32)"),
    (pa.int32(), "year(4)"),
    (pa.decimal128(20, 0), "bigint unsigned"),
    (pa.decimal128(10, 0), "tinyint"),
    (pa.decimal128(10, 2), "int"),
    (pa.decimal128(20, 0), "bit(64)"),
    (pa.decimal128(10, -2), "year"),
    (pa.decimal32(5, 2), "decimal(4,1)"),
    (pa.decimal256(76, 30), "decimal(10,2) unsigned"),
    (pa.int64(), "decimal(10,0)"),
    (pa.int32(), "decimal(10,0)"),
    (pa.int64(), "decimal(22,2)"),
    (pa.int32(), "double"),
    (pa.int16(), "float"),
    (pa.float32(), "float"),
    (pa.float32(), "double"),
    (pa.float64(), "double"),
    (pa.float16(), "float"),
    (pa.decimal128(10, 2), "decimal(10,2)"),
    (pa.decimal128(10, 2), "decimal(20,4)"),
    (pa.decimal128(10, 2), "decimal(10,1)"),
    (pa.decimal128(10, 2), "decimal(9,2)"),
    (pa.decimal128(38, 18), "decimal(10,2)"),
    (pa.string(), "enum('a','b')"),
    (pa.dictionary(pa.int8(), pa.string()), "set('a','b')"),
    (pa.string(), "uuid"),
    (pa.string(), "inet4"),
    (pa.large_string(), "inet6"),
    (pa.string(), "varchar(10)"),
    (pa.string(), "char(10)"),
    (pa.string(), "longtext"),
    (pa.string(), "json"),
    (pa.large_string(), "text"),
    (pa.dictionary(pa.int32(), pa.string()), "varchar(10)"),
    (pa.binary(), "varbinary(10)"),
    (pa.binary(), "binary(10)"),
    (pa.binary(16), "binary(16)"),
    (pa.large_binary(), "longblob"),
    (pa.bool_(), "tinyint(1)"),
    (pa.bool_(), "bit(1)"),
    (pa.date32(), "date"),
    (pa.date32(), "datetime"),
    (pa.timestamp("us"), "datetime(6)"),
    (pa.timestamp("us", "UTC"), "timestamp(6)"),
    (pa.timestamp("us"), "datetime"),
    (pa.timestamp("ns"), "datetime(6)"),
    (pa.time64("us"), "time(6)"),
    (pa.null(), "int"),
]
MISFITS = [
    (pa.int64(), "varchar(20)"),
    (pa.int32(), "date"),
    (pa.float64(), "float"),
    (pa.float64(), "double(10,2)"),
    (pa.float64(), "decimal(20,2)"),
    (pa.float64(), "int"),
    (pa.decimal128(10, 2), "double"),
    (pa.string(), "int"),
    (pa.string(), "datetime(6)"),
    (pa.string(), "varbinary(10)"),
    (pa.string(), "geometry"),
    (pa.binary(), "point"),
    (pa.string(), "vector(3)"),
    (pa.int64(), "year(2)"),
    (pa.string(), "year"),
    (pa.string(), "bit(8)"),
    (pa.binary(), "bit(8)"),
    (pa.bool_(), "year"),
    (pa.int32(), "enum('a','b')"),
    (pa.int64(), "set('a','b')"),
    (pa.binary(16), "uuid"),
    (pa.binary(16), "inet6"),
    (pa.int64(), "inet4"),
    (pa.int32(), "double(10,2)"),
    (pa.decimal128(10, 0), "varchar(10)"),
    (pa.binary(), "varchar(10)"),
    (pa.bool_(), "varchar(5)"),
    (pa.bool_(), "decimal(1,0)"),
    (pa.date32(), "timestamp"),
    (pa.date32(), "varchar(10)"),
    (pa.timestamp("us"), "date"),
    (pa.timestamp("us"), "bigint"),
    (pa.time64("us"), "datetime"),
    (pa.duration("us"), "bigint"),
    (pa.month_day_nano_interval(), "varchar(100)"),
    (pa.list_(pa.int32()), "json"),
    (pa.struct([("a", pa.int32())]), "json"),
    (pa.map_(pa.string(), pa.int32()), "json"),
]


@pytest.mark.parametrize(
    ("kind", "declared"), FITS, ids=[f"{kind} into {text}" for kind, text in FITS]
)
def test_fits(kind, declared):
    assert isinstance(plan_column(pa.field("f", kind), column(declared)), ColumnPlan)


@pytest.mark.parametrize(
    ("kind", "declared"), MISFITS, ids=[f"{kind} into {text}" for kind, text in MISFITS]
)
def test_does_not_fit_and_is_named(kind, declared):
    problem = plan_column(pa.field("f", kind), column(declared))
    assert isinstance(problem, str)
    assert problem.startswith("f: ")
    assert declared in problem


def test_a_generated_column_takes_no_rows():
    assert "computes" in str(plan_column(pa.field("f", pa.int32()), column("int", generated=True)))


def test_labels_that_are_bytes_take_no_rows():
    for unset in (None, "binary"):
        problem = plan_column(pa.field("f", pa.string()), column("enum('a')", collation=unset))
        assert "character set" in str(problem)


def test_null_rows_need_a_nullable_column():
    assert isinstance(plan_column(pa.field("f", pa.null()), column("int", nullable=False)), str)


def test_a_plan_says_how_the_column_is_written():
    plan = plan_column(
        pa.field("f", pa.timestamp("ns", "UTC")), column("datetime(3)", nullable=True)
    )
    assert plan == ColumnPlan(
        "f", "c", pa.timestamp("us"), Encoding.TIMESTAMP, nullable=True, fraction_digits=3
    )
