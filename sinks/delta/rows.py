"""Checks that rows fit a table, before any is written.

Delta's `writeFiles` accepts any column types: `df.write` checks them before that. So does this
module. A column may be widened without loss (int to bigint, float to double, more digits);
everything else is an error that names the column.

Delta stores a partition value as text: in its log, and in the name of a folder unless the table's
folders have random names. An empty text reads back as null, and so does Hive's name for null; bytes
that are not UTF-8 read back as others. A folder's name cannot hold NUL, and its length is limited.
Such values are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
)

from twophase.sinks.common.partition_names import MAX_NAME_BYTES, NULL_NAME, escape
from twophase.sinks.delta.ddl import quoted
from twophase.sinks.delta.layout import TableLayout

AS_NULL = "would read back as null"
REFUSED = "TWOPHASE_PARTITION_VALUE"
"""A marker in the text of the error that Spark raises for a row: before the problem,
and before the value.
"""

_ESCAPED = "".join(
    character for character in map(chr, range(1, 128)) if escape(character) != character
)
_SHOWN = 40

_DEFAULT = "CURRENT_DEFAULT"
_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}


@dataclass(frozen=True)
class RowCheck:
    """The result of validating rows against a table.

    Attributes:
        problems: why they do not fit; empty if they do.
        missing: columns of the rows that the table lacks.
        casts: columns to widen, by their name in the rows.
    """

    problems: tuple[str, ...]
    missing: tuple[StructField, ...]
    casts: dict[str, DataType]

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the types of the table."""
        return rows.withColumns(
            {name: rows[quoted(name)].cast(kind) for name, kind in self.casts.items()}
        )


def check_rows(rows: StructType, table: StructType, layout: TableLayout) -> RowCheck:
    """Validate the columns of rows against a table's, without regard to case, as in Delta."""
    columns = {field.name.lower(): field for field in table.fields}
    problems = _duplicates(rows)
    missing, casts = [], {}
    for field in rows.fields:
        column = columns.get(field.name.lower())
        if column is None:
            missing.append(field)
        elif _widens(field.dataType, column.dataType):
            casts[field.name] = column.dataType
        elif reason := _mismatch(field.dataType, column.dataType):
            problems.append(f"column {field.name!r}: {reason}")
    given = {field.name.lower() for field in rows.fields}
    for column in table.fields:
        if column.name.lower() not in given and (reason := _needed(column, layout)):
            problems.append(f"column {column.name!r} is not in the rows and {reason}")
    return RowCheck(tuple(problems), tuple(missing), casts)


def _duplicates(rows: StructType) -> list[str]:
    names = [name.lower() for name in rows.names]
    return [
        f"column {name!r} appears twice"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]


def _needed(column: StructField, layout: TableLayout) -> str:
    """Return why a column of the table cannot be left out of the rows."""
    if column.name in layout.generated_columns():
        return ""
    if column.name in layout.partition_columns:
        return "is a partition column"
    if _DEFAULT in column.metadata:
        return "has a default value, which Delta only fills in for SQL: give it in the rows"
    return "" if column.nullable else "is NOT NULL"


def _mismatch(rows: DataType, table: DataType) -> str:
    """Return why one type cannot be written as another without a cast; empty if it can."""
    match rows, table:
        case StructType(), StructType():
            return _struct_mismatch(rows.fields, table.fields)
        case ArrayType(), ArrayType():
            if rows.containsNull and not table.containsNull:
                return "its elements may be null and the table's may not"
            return _mismatch(rows.elementType, table.elementType)
        case MapType(), MapType():
            if rows.valueContainsNull and not table.valueContainsNull:
                return "its values may be null and the table's may not"
            return _mismatch(rows.keyType, table.keyType) or _mismatch(
                rows.valueType, table.valueType
            )
        case _:
            same = rows == table
            types = f"the rows have {rows.simpleString()}, the table has {table.simpleString()}"
            return "" if same else types


def _struct_mismatch(rows: Sequence[StructField], table: Sequence[StructField]) -> str:
    ours, theirs = [field.name.lower() for field in rows], [field.name.lower() for field in table]
    if ours != theirs:
        return f"the rows have the fields {ours}, the table has {theirs}"
    for field, column in zip(rows, table, strict=True):
        if reason := _mismatch(field.dataType, column.dataType):
            return f"field {field.name!r}: {reason}"
    return ""


def _widens(rows: DataType, table: DataType) -> bool:
    """Return whether every value of a type fits another type unchanged."""
    if type(rows) in _INTEGERS and type(table) in _INTEGERS:
        return _INTEGERS.index(type(rows)) < _INTEGERS.index(type(table))
    if isinstance(table, DecimalType):
        before, scale = _digits(rows)
        return (
            rows != table and 0 <= before <= table.precision - table.scale and scale <= table.scale
        )
    return isinstance(table, DoubleType) and isinstance(
        rows, FloatType | ByteType | ShortType | IntegerType
    )


def _digits(kind: DataType) -> tuple[int, int]:
    """Return the digits before and after the decimal point; -1 for a type that has none."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS.get(type(kind), -1), 0


def reject_bad_partition_values(
    rows: DataFrame, partition_columns: Sequence[str], *, in_folder_names: bool
) -> DataFrame:
    """Return the same rows; Spark raises `REFUSED` for a partition value that would change.

    Args:
        rows: to be written.
        partition_columns: of the table; Delta computes those that the rows do not have.
        in_folder_names: the values become names of folders.
    """
    partitioned = {name.lower() for name in partition_columns}
    texts = [
        field.name
        for field in rows.schema.fields
        if field.name.lower() in partitioned and isinstance(field.dataType, StringType | BinaryType)
    ]
    return rows.withColumns(
        {name: _checked(name, rows[quoted(name)], in_folder_names) for name in texts}
    )


def _checked(name: str, value: Column, in_folder_names: bool) -> Column:
    text = value.cast("string")
    problem = F.when(text.isin("", NULL_NAME), AS_NULL).when(
        ~F.is_valid_utf8(text), "is not UTF-8, so it would read back as another value"
    )
    if in_folder_names:
        problem = problem.when(text.contains("\0"), "holds a NUL, which no folder's name can").when(
            _name_bytes(name, text) > MAX_NAME_BYTES,
            f"makes a folder's name of more than {MAX_NAME_BYTES} bytes",
        )
    shown = F.substring(text, 1, _SHOWN)
    head, tail = F.lit(f"{REFUSED} partition column {name!r}: "), F.lit(f" {REFUSED} ")
    error = F.raise_error(F.concat(head, problem, tail, shown))
    return F.when(problem.isNull(), value).otherwise(error)


def _name_bytes(name: str, text: Column) -> Column:
    """Return the length of the folder's name. Escaping turns a character of one byte into three."""
    kept = F.translate(text, _ESCAPED, "")
    return (
        F.lit(len(escape(name).encode()) + 1)
        + F.octet_length(text)
        + 2 * (F.length(text) - F.length(kept))
    )
