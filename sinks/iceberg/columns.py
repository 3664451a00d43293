"""Checks the columns of rows against those of a table before the first row is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from twophase.errors import ConfigError
from twophase.sinks.common.lake.rows import duplicates, fields_of, refusal_of_struct

PLAIN: Sequence[PrimitiveType] = (
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType()),
    *(DecimalType(9, 2), DecimalType(38, 2), StringType(), UUIDType(), FixedType(16)),
    *(BinaryType(), DateType(), TimeType(), TimestampType(), TimestamptzType()),
)
"""The types of columns that are not nested, for the page."""


def table_schema(rows: pa.Schema) -> Schema:
    """Return the schema of a new table for rows; every column may be null.

    Raises:
        ConfigError: a column has a type that Iceberg lacks, or names differ in case only.
    """
    ids = iter(range(1, 1 << 30))
    problems: list[str] = []
    fields = [_new_field(field, ids, problems, field.name) for field in rows]
    problems += duplicates(rows.names)
    problems += name_problems(fields)
    if problems:
        raise refused(problems)
    return Schema(*fields)


def name_problems(fields: Sequence[NestedField]) -> list[str]:
    """Return which columns, or fields inside them, a table cannot have beside the others.

    Iceberg finds a field by the names on its way, joined by dots, so the column `a.b` and the
    field `b` of the column `a` are one to it. A data file has names that Avro allows: `a.b` is
    `a_x2Eb` there.
    """
    problems: list[str] = []
    in_table, in_files = dict[str, str](), dict[str, str]()
    for path in _paths(StructType(*fields), ()):
        shown = "column " + " in ".join(repr(name) for name in reversed(path))
        if "" in path:
            problems += [f"{shown} has an empty name"] if path[-1] == "" else []
            continue
        if "\0" in path[-1]:
            problems.append(f"{shown} has a name that readers in C cut at its NUL")
        in_file = ".".join(map(make_compatible_name, path))
        if (other := in_table.setdefault(".".join(path), shown)) != shown:
            problems.append(f"{shown} has the name of {other} in Iceberg")
        elif (other := in_files.setdefault(in_file, shown)) != shown:
            problems.append(f"{shown} has the name of {other} in data files, {in_file!r}")
    return problems


def inner_names(fields: Sequence[NestedField]) -> Iterator[tuple[str, str]]:
    """Yield each name inside columns, with the column."""
    for path in _paths(StructType(*fields), ()):
        if len(path) > 1:
            yield path[-1], path[0]


def _paths(kind: IcebergType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names on the way to each field."""
    match kind:
        case StructType():
            inside = [(field.name, field.field_type) for field in kind.fields]
        case ListType():
            inside = [("element", kind.element_type)]
        case MapType():
            inside = [("key", kind.key_type), ("value", kind.value_type)]
        case _:
            inside = []
    for name, inner in inside:
        yield (*path, name)
        yield from _paths(inner, (*path, name))


def check_rows(rows: pa.Schema, schema: Schema) -> None:
    """Check that rows can be written so that they read back unchanged.

    Raises:
        ConfigError: a column cannot, or the table lacks it or needs one that the rows lack.
    """
    problems = duplicates(rows.names)
    known = {field.name: field for field in schema.fields}
    lacking = [field.name for field in rows if field.name not in known]
    problems += [f"column {name!r} is not in the table" for name in lacking]
    for field in rows:
        if field.name in lacking:
            continue
        if reason := refusal(field.type, known[field.name].field_type):
            problems.append(f"column {field.name!r}: {reason}")
    for name in known.keys() - {*rows.names}:
        if known[name].required:
            problems.append(f"column {name!r} is required, and the rows lack it")
    if problems:
        way_on = ", or let a start add columns: `schema_change=add_columns`" if lacking else ""
        raise refused(problems, way_on)


def refused(problems: list[str], way_on: str = "") -> ConfigError:
    """Return the error of rows that cannot be written to a table."""
    return ConfigError(
        f"The rows do not fit the Iceberg table: {'; '.join(sorted(problems))}.",
        remedy=f"change the rows in the query or the sink's transform, or alter the table{way_on}.",
    )


def _new_field(field: pa.Field, ids: Iterator[int], problems: list[str], path: str) -> NestedField:
    number = next(ids)
    return NestedField(number, field.name, _new_type(field.type, ids, problems, path))


def _new_type(kind: pa.DataType, ids: Iterator[int], problems: list[str], path: str) -> IcebergType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        number = next(ids)
        element = _new_type(kind.value_type, ids, problems, path)
        return ListType(number, element, element_required=False)
    if pa.types.is_map(kind):
        key_id, value_id = next(ids), next(ids)
        key = _new_type(kind.key_type, ids, problems, path)
        value = _new_type(kind.item_type, ids, problems, path)
        return MapType(key_id, key, value_id, value, value_required=False)
    if pa.types.is_struct(kind):
        inner = fields_of(kind)
        if reason := refusal_of_struct(inner):
            problems.append(f"column {path!r}: {reason}")
        return StructType(*(_new_field(one, ids, problems, path) for one in inner))
    found = _plain(kind)
    if found is None:
        problems.append(f"column {path!r}: {kind} is not supported; cast it")
    return found or StringType()


def _plain(kind: pa.DataType) -> IcebergType | None:
    """Return the narrowest type for a plain value; None if there is none."""
    if pa.types.is_boolean(kind):
        return BooleanType()
    if pa.types.is_signed_integer(kind):
        return LongType() if kind.bit_width == 64 else IntegerType()
    if pa.types.is_float32(kind):
        return FloatType()
    if pa.types.is_float64(kind):
        return DoubleType()
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return StringType()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return BinaryType()
    if pa.types.is_date32(kind):
        return DateType()
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return TimestamptzType() if kind.tz else TimestampType()
    return None


def refusal(kind: pa.DataType, column: IcebergType) -> str:
    """Return why values cannot be stored unchanged in a column; empty if they can."""
    match column:
        case ListType() if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return _refusal_inside(kind.value_type, column.element_type, column.element_required)
        case MapType() if pa.types.is_map(kind):
            return _refusal_inside(kind.key_type, column.key_type, False) or _refusal_inside(
                kind.item_type, column.value_type, column.value_required
            )
        case StructType() if pa.types.is_struct(kind):
            return _refusal_of_fields(kind, column)
        case _:
            return "" if _fits(_plain(kind), column) else f"{kind} does not fit {column}; cast it"


def _refusal_inside(kind: pa.DataType, column: IcebergType, required: bool) -> str:
    if required:
        return f"values inside it are required ({column}), which is not checked here"
    return refusal(kind, column)


def _refusal_of_fields(kind: pa.DataType, column: StructType) -> str:
    given = {field.name: field for field in fields_of(kind)}
    if reason := refusal_of_struct(fields_of(kind)):
        return reason
    known = {field.name: field for field in column.fields}
    if given.keys() != known.keys():
        return f"its fields are {[*given]}, those of the table {[*known]}"
    reasons = (
        _refusal_inside(given[name].type, known[name].field_type, known[name].required)
        for name in known
    )
    return next((reason for reason in reasons if reason), "")


def _fits(given: IcebergType | None, column: IcebergType) -> bool:
    match given, column:
        case None, _:
            return False
        case IntegerType(), LongType():
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            return given.scale == column.scale and given.precision <= column.precision
        case _:
            return given == column
