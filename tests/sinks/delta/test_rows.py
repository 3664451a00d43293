"""Rows fit a table, or the error names every column that does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from twophase.sinks.delta.layout import TableLayout
from twophase.sinks.delta.rows import RowCheck, check_rows


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def layout_of(table: StructType, partitions: tuple[str, ...] = ()) -> TableLayout:
    return TableLayout(tuple(table.jsonValue()["fields"]), partitions, (), {})


def fitted(rows: StructType, table: StructType, partitions: tuple[str, ...] = ()) -> RowCheck:
    return check_rows(rows, table, layout_of(table, partitions))


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        (ByteType(), ShortType()),
        (IntegerType(), LongType()),
        (FloatType(), DoubleType()),
        (IntegerType(), DoubleType()),
        (DecimalType(10, 2), DecimalType(12, 3)),
        (LongType(), DecimalType(19, 0)),
    ],
)
def test_a_narrower_type_is_widened(rows: DataType, table: DataType) -> None:
    assert fitted(struct(a=rows), struct(A=table)) == RowCheck((), (), {"a": table})
    assert fitted(struct(a=table), struct(a=rows)).problems != ()


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        (LongType(), DoubleType()),
        (LongType(), DecimalType(18, 0)),
        (DecimalType(10, 2), DecimalType(10, 1)),
        (DecimalType(10, 2), DecimalType(10, 3)),
        (DoubleType(), FloatType()),
        (StringType(), LongType()),
        (BooleanType(), IntegerType()),
        (BooleanType(), DecimalType(10, 0)),
        (TimestampType(), TimestampNTZType()),
        (ArrayType(IntegerType(), True), ArrayType(IntegerType(), False)),
        (MapType(StringType(), LongType(), True), MapType(StringType(), LongType(), False)),
        (MapType(StringType(), LongType()), MapType(LongType(), LongType())),
        (struct(x=LongType()), struct(x=StringType())),
        (ArrayType(struct(x=LongType())), ArrayType(struct(X=IntegerType()))),
        (struct(x=LongType(), X=LongType()), struct(x=LongType())),
        (LongType(), struct(x=LongType())),
        (struct(), StructType([StructField("x", LongType(), nullable=False)])),
    ],
)
def test_another_type_is_a_problem_that_names_the_column(rows: DataType, table: DataType) -> None:
    [problem] = fitted(struct(a=rows), struct(A=table)).problems
    assert problem.startswith(("column 'a': ", "column 'a."))


@pytest.mark.parametrize(
    "kind",
    [
        DecimalType(10, 2),
        ArrayType(StringType()),
        MapType(StringType(), struct(x=LongType())),
        struct(x=ArrayType(struct(y=TimestampType()))),
    ],
)
def test_the_same_type_fits_as_it_is(kind: DataType) -> None:
    assert fitted(struct(a=kind), struct(a=kind)) == RowCheck((), (), {})


def test_new_columns_are_listed_and_those_left_out_may_be_null() -> None:
    found = fitted(struct(a=LongType(), b=StringType()), struct(a=LongType(), c=StringType()))
    assert (found.problems, [str(column) for column in found.missing]) == ((), ["b"])


PAIR = struct(x=LongType(), y=StringType())
SHAPES: dict[str, tuple[StructType, StructType, list[str]]] = {
    "another order": (struct(y=StringType(), x=LongType()), PAIR, []),
    "another case": (struct(X=LongType(), Y=StringType()), PAIR, []),
    "one less": (struct(y=StringType()), PAIR, []),
    "one more": (
        struct(z=LongType(), y=StringType(), x=LongType()),
        struct(x=LongType(), y=StringType(), z=LongType()),
        ["z"],
    ),
    "one more, one less": (
        struct(z=LongType(), y=StringType()),
        struct(x=LongType(), y=StringType(), z=LongType()),
        ["z"],
    ),
    "narrower": (struct(x=IntegerType(), y=StringType()), PAIR, []),
}
DEPTHS: dict[str, tuple[Callable[[DataType], DataType], str]] = {
    "column": (lambda kind: kind, "a"),
    "array": (ArrayType, "a.element"),
    "value": (lambda kind: MapType(StringType(), kind), "a.value"),
    "key": (lambda kind: MapType(kind, StringType()), "a.key"),
    "struct": (lambda kind: struct(i=kind), "a.i"),
    "array in a map in a struct": (
        lambda kind: struct(i=MapType(StringType(), ArrayType(kind))),
        "a.i.value.element",
    ),
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fields_are_matched_by_name_at_every_depth(shape: str, depth: str) -> None:
    (rows, written, new), (inside, path) = SHAPES[shape], DEPTHS[depth]
    found = fitted(struct(a=inside(rows)), struct(a=inside(PAIR)))
    assert found.problems == ()
    assert [str(column) for column in found.missing] == [f"{path}.{name}" for name in new]
    assert found.changes == {"a": inside(written)}


def test_a_column_that_is_needed_may_not_be_left_out() -> None:
    table = StructType(
        [
            StructField("day", StringType()),
            StructField("n", LongType(), False),
            StructField("d", LongType(), True, {"CURRENT_DEFAULT": "1"}),
            StructField("g", LongType(), False, {"delta.generationExpression": "n + 1"}),
        ]
    )
    assert fitted(StructType([]), table, ("day",)).problems == (
        "column 'day' is not in the rows and is a partition column",
        "column 'n' is not in the rows and is NOT NULL",
        (
            "column 'd' is not in the rows and has a default value, which Delta only fills in for "
            "SQL: give it in the rows"
        ),
    )


def test_two_columns_of_one_name_are_a_problem() -> None:
    assert fitted(struct(a=LongType(), A=LongType()), struct(a=LongType())).problems == (
        "column 'a' appears twice",
    )
