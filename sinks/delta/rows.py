"""Checks that rows fit a table, before any is written.

Delta's `writeFiles` accepts any column types, and goes by the position of fields in structs:
`df.write` checks and arranges them before that. So does this module. Columns, and fields of structs
at any depth, are matched by name. A type may be widened without loss (int to bigint, float to
double, more digits); everything else is an error that names the column.

Delta stores a partition value as text: in its log, and in the name of a folder unless the table's
folders have random names. An empty text reads back as null, and so does Hive's name for null; bytes
that are not UTF-8 read back as others. A folder's name cannot hold NUL, and its length is limited.
Such values are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from twophase.sinks.delta.ddl import NewColumn, quoted
from twophase.sinks.delta.layout import TableLayout

AS_NULL = "would read back as null"
REFUSED = "TWOPHASE_PARTITION_VALUE"
"""A marker in the text of the error that Spark raises for a row: before the column, before the
problem, and before the value.
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
        missing: columns and fields of the rows that the table lacks.
        changes: columns to rearrange or widen, by their name in the rows, with their new type; it
            has the fields that are missing in the table.
    """

    problems: tuple[str, ...]
    missing: tuple[NewColumn, ...]
    changes: Mapping[str, DataType]

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the types of the table."""
        return rows.withColumns(
            {
                name: _arranged(rows[quoted(name)], rows.schema[name].dataType, kind)
                for name, kind in self.changes.items()
            }
        )


def check_rows(rows: StructType, table: StructType, layout: TableLayout) -> RowCheck:
    """Validate the columns of rows against a table's, without regard to case, as in Delta."""
    columns = {field.name.lower(): field for field in table.fields}
    match, changes = _Match(_duplicates(rows), []), {}
    for field in rows.fields:
        column = columns.get(field.name.lower())
        if column is None:
            match.missing.append(NewColumn((), field))
            continue
        kind = match.type(field.dataType, column.dataType, (field.name,))
        if not _is_alike(field.dataType, kind):
            changes[field.name] = kind
    given = {field.name.lower() for field in rows.fields}
    for column in table.fields:
        if column.name.lower() not in given and (reason := _needed(column, layout)):
            match.problems.append(f"column {column.name!r} is not in the rows and {reason}")
    return RowCheck(tuple(match.problems), tuple(match.missing), changes)


@dataclass(frozen=True)
class _Match:
    """Matches the types of rows with those of a table.

    Attributes:
        problems: what does not fit so far.
        missing: what the table lacks so far.
    """

    problems: list[str]
    missing: list[NewColumn]

    def type(self, rows: DataType, table: DataType, path: tuple[str, ...]) -> DataType:
        """Return the type to write, which is the table's with the fields that it lacks."""
        match rows, table:
            case StructType(), StructType():
                return self._struct(rows, table, path)
            case ArrayType(), ArrayType():
                if rows.containsNull and not table.containsNull:
                    self._add(path, "its elements may be null and the table's may not")
                element = self.type(rows.elementType, table.elementType, (*path, "element"))
                return ArrayType(element, table.containsNull)
            case MapType(), MapType():
                if rows.valueContainsNull and not table.valueContainsNull:
                    self._add(path, "its values may be null and the table's may not")
                key = self.type(rows.keyType, table.keyType, (*path, "key"))
                value = self.type(rows.valueType, table.valueType, (*path, "value"))
                return MapType(key, value, table.valueContainsNull)
            case _:
                if rows != table and not _widens(rows, table):
                    ours, theirs = rows.simpleString(), table.simpleString()
                    self._add(path, f"the rows have {ours}, the table has {theirs}")
                return table

    def _struct(self, rows: StructType, table: StructType, path: tuple[str, ...]) -> StructType:
        for problem in _duplicates(rows):
            self._add(path, problem)
        given = {field.name.lower(): field for field in rows.fields}
        fields = []
        for column in table.fields:
            field = given.pop(column.name.lower(), None)
            if field is not None:
                kind = self.type(field.dataType, column.dataType, (*path, column.name))
                fields.append(StructField(column.name, kind, column.nullable))
                continue
            if not column.nullable:
                self._add(path, f"field {column.name!r} is not in the rows and is NOT NULL")
            fields.append(column)
        self.missing.extend(NewColumn(path, field) for field in given.values())
        return StructType([*fields, *given.values()])

    def _add(self, path: tuple[str, ...], reason: str) -> None:
        self.problems.append(f"column {'.'.join(path)!r}: {reason}")


def _is_alike(rows: DataType, table: DataType) -> bool:
    """Return whether types differ at most in what may be null."""
    match rows, table:
        case StructType(), StructType():
            return rows.names == table.names and all(
                _is_alike(one.dataType, other.dataType)
                for one, other in zip(rows.fields, table.fields, strict=True)
            )
        case ArrayType(), ArrayType():
            return _is_alike(rows.elementType, table.elementType)
        case MapType(), MapType():
            return _is_alike(rows.keyType, table.keyType) and _is_alike(
                rows.valueType, table.valueType
            )
        case _:
            return rows == table


def _arranged(value: Column, rows: DataType, table: DataType) -> Column:
    """Return a value with the fields and types of the table's."""
    if _is_alike(rows, table):
        return value
    match rows, table:
        case StructType(), StructType():
            given = {field.name.lower(): field for field in rows.fields}
            fields = [
                _field(value, given.get(column.name.lower()), column) for column in table.fields
            ]
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType(), ArrayType():
            return F.transform(
                value, lambda element: _arranged(element, rows.elementType, table.elementType)
            )
        case MapType(), MapType():
            keyed = F.transform_keys(
                value, lambda key, _: _arranged(key, rows.keyType, table.keyType)
            )
            return F.transform_values(
                keyed, lambda _, item: _arranged(item, rows.valueType, table.valueType)
            )
        case _:
            return value.cast(table)


def _field(struct: Column, given: StructField | None, column: StructField) -> Column:
    if given is None:
        return F.lit(None).cast(column.dataType).alias(column.name)
    value = struct.getField(given.name)
    return _arranged(value, given.dataType, column.dataType).alias(column.name)


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
    head, tail = F.lit(f"{REFUSED} {name} {REFUSED} "), F.lit(f" {REFUSED} ")
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
