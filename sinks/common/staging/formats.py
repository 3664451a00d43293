"""The file formats: the types that each can store, and its writer.

Parquet, ORC and CSV are written by pyarrow. For JSON lines pyarrow has only a reader, so they are
written here as Spark writes them: ISO dates and times, base64 for bytes, `NaN` and `Infinity` as
text. A decimal is text, which both Spark and pyarrow read with all its digits.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet

from twophase.internals.arrow_values import scalar
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import RefusedValueError
from twophase.sinks.common.staging import hive_files
from twophase.sinks.common.staging.disk import NewFile
from twophase.sinks.common.staging.nested import without_hidden_values
from twophase.sinks.common.staging.parquet_dictionaries import with_dictionary
from twophase.sinks.common.staging.parquet_statistics import with_bounds
from twophase.sinks.common.staging.times import (
    check_years,
    in_utc,
    is_time,
    shown_time,
    times_inside,
)

_NANOSECOND_YEARS_US = (2**63 - 1) // 1000

_MARKS = frozenset({b"variant", b"geometry", b"geography"})
"""Of the fields of a struct that stands for a value of such a type of Spark's."""


class Format(StrEnum):
    """A file format; its value is the end of its file names."""

    PARQUET = "parquet"
    ORC = "orc"
    JSON = "json"
    CSV = "csv"

    @property
    def suffix(self) -> str:
        """The suffix of its file names."""
        return f".{self.value}"


def refusal(kind: Format, column: pa.DataType) -> str:
    """Return why a column cannot be written so that it reads back unchanged; empty if it can."""
    if pa.types.is_timestamp(column) and kind is Format.ORC:
        return _refusal_in_orc(column)
    if pa.types.is_nested(column):
        return _refusal_of_nested(kind, column)
    if pa.types.is_binary(column) or pa.types.is_large_binary(column):
        in_csv = "CSV cannot store bytes; convert them to a string, for example with base64"
        return in_csv if kind is Format.CSV else ""
    plain = (
        _is_text(column)
        or pa.types.is_boolean(column)
        or pa.types.is_signed_integer(column)
        or pa.types.is_float32(column)
        or pa.types.is_float64(column)
        or pa.types.is_decimal128(column)
        or pa.types.is_date32(column)
        or (pa.types.is_timestamp(column) and column.unit == "us")
    )
    if plain:
        return ""
    return f"{column} does not read back unchanged from {kind.value}; cast it"


def _refusal_of_nested(kind: Format, column: pa.DataType) -> str:
    if kind is Format.CSV:
        return "CSV cannot store nested values; convert it to a string, for example with to_json"
    if pa.types.is_map(column) and kind is Format.JSON and not _is_text(column.key_type):
        return "the keys of a JSON object are strings"
    fields = [column.field(number) for number in range(column.num_fields)]
    if marks := [mark for field in fields for mark in _MARKS & {*(field.metadata or {})}]:
        return (
            f"a {marks[0].decode()} is read back as a struct of bytes; convert it to a string, for "
            "example with to_json"
        )
    if not fields and kind is not Format.JSON:
        return f"{kind.value} cannot store a struct without fields"
    inner = [field.type for field in fields]
    if kind is Format.ORC and any(is_time(child) for child in inner):
        return (
            "dates and times in ORC are checked one by one, "
            "and this one is inside another value; make it a column of its own"
        )
    return next((reason for child in inner if (reason := refusal(kind, child))), "")


def write(kind: Format, rows: pa.Table, file: NewFile, *, for_hive: bool = False) -> None:
    """Write a whole file.

    Args:
        kind: its format.
        rows: its content.
        file: where it goes.
        for_hive: Hive's own reader has to read it too.

    Raises:
        RefusedValueError: pyarrow would write a value that Spark or Hive cannot read.
    """
    match kind:
        case Format.PARQUET if for_hive:
            hive_files.write_parquet(rows, file)
        case Format.PARQUET:
            pa.parquet.write_table(
                rows,
                file,
                use_dictionary=with_dictionary(rows),
                write_statistics=with_bounds(rows),
            )
        case Format.ORC:
            rows = without_hidden_values(rows)
            _check_for_orc(rows, for_hive=for_hive)
            if for_hive:
                hive_files.write_orc(rows, file)
            else:
                pa.orc.write_table(rows, file)
        case Format.CSV:
            rows = _in_utc(rows)
            _check_texts(kind, rows)
            _check_lines(rows)
            pa.csv.write_csv(rows, file)
        case Format.JSON:
            rows = _in_utc(rows)
            _check_texts(kind, rows)
            for batch in rows.to_batches(max_chunksize=10_000):
                file.write("".join(f"{_line(row)}\n" for row in _values(batch)).encode())


def _in_utc(rows: pa.Table) -> pa.Table:
    """Return the same rows with their moments in UTC.

    The offset of another zone may have seconds (+00:19:32), which pyarrow's text leaves out, and
    the zone may be one of Java's (`GMT+1`), which pyarrow does not know.
    """
    return rows.cast(pa.schema([one.with_type(in_utc(one.type)) for one in rows.schema]))


def _values(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    nested = [field for field in batch.schema if pa.types.is_nested(field.type)]
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
        for row in rows:
            row.update({field.name: _objects(field.type, row[field.name]) for field in nested})
    except UnicodeDecodeError:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            check_utf8(name, column)
        raise
    except KeyError:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            _check_keys(name, column)
        raise
    return rows


def _objects(kind: pa.DataType, value: Any) -> Any:
    """Return a value with its maps as dictionaries; pyarrow has that from version 20 on.

    Raises:
        KeyError: a map has a key twice.
    """
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {field.name: _objects(field.type, value[field.name]) for field in kind}
    if not pa.types.is_map(kind):
        return [_objects(kind.value_type, one) for one in value]
    found = {key: _objects(kind.item_type, item) for key, item in value}
    if len(found) < len(value):
        raise KeyError
    return found


def _check_keys(name: str, column: pa.Array) -> None:
    """Refuse the first map that has a key twice."""
    for number in range(len(column)):
        row = column[number].as_py()
        try:
            _objects(column.type, row)
        except KeyError:
            raise RefusedValueError(
                f"{name} has a map with a key twice, of which readers of json keep one: "
                f"{shown(row)}",
                remedy="leave one of them out, or write parquet or orc.",
            ) from None


def _refusal_in_orc(column: pa.DataType) -> str:
    if column.tz is None:
        return (
            "pyarrow and Spark disagree about timestamps without a time zone in ORC; "
            "use a timestamp with one"
        )
    if column.unit == "us":
        return ""
    return f"{column} does not read back unchanged from orc; cast it"


def _check_for_orc(rows: pa.Table, *, for_hive: bool) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_date32(field.type) and not for_hive:
            days = column.cast(pa.int32())
            _refuse(
                field,
                days,
                pc.less(days, hive_files.GREGORIAN_DAY),
                "is before 1582-10-15, and Spark would shift it",
            )
        elif pa.types.is_timestamp(field.type):
            micros = column.cast(pa.int64())
            far = pc.greater(pc.abs(micros), _NANOSECOND_YEARS_US)
            if not for_hive:
                _refuse(
                    field,
                    micros,
                    far,
                    "is outside the years that fit into nanoseconds, which pyarrow reads",
                )
            fraction = pc.not_equal(pc.multiply(pc.divide(micros, 10**6), 10**6), micros)
            broken = pc.and_(fraction, pc.less(micros, 0))
            _refuse(
                field,
                micros,
                broken,
                "has a fraction of a second and is before 1970, which Spark cannot read",
            )


def check_utf8(name: str, column: pa.Array | pa.ChunkedArray) -> None:
    """Refuse what a text column holds and is no text.

    Raises:
        RefusedValueError: a value is not in UTF-8.
    """
    if _is_text(column.type) and _is_utf8(column):
        return
    for number, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError:
            raise RefusedValueError(
                f"{name} in row {number + 1} of {len(column)} is not text in UTF-8",
                remedy="decode these bytes in the rows, for example with decode(value, "
                "'ISO-8859-1'), or write them to a column of bytes.",
            ) from None


def _check_lines(rows: pa.Table) -> None:
    """Refuse a line without anything in it: readers skip it."""
    if rows.num_columns != 1 or not rows.column(0).null_count:
        return
    row = pc.index(rows.column(0).is_null(), scalar(value=True)).as_py()
    raise RefusedValueError(
        f"{rows.schema.names[0]} = NULL in row {row + 1} of {rows.num_rows} would be an empty line "
        "of csv, which readers skip",
        remedy="write a second column, or another format, or leave such rows out.",
    )


def _check_texts(kind: Format, rows: pa.Table) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if kind is Format.CSV and _is_text(field.type):
            check_utf8(field.name, column)
        if is_time(field.type):
            check_years(field.name, column, kind.value)
            continue
        for chunk in column.chunks:
            for times in times_inside(chunk):
                check_years(f"{field.name} (inside it)", times, kind.value, rows=False)


def _refuse(field: pa.Field, numbers: pa.ChunkedArray, broken: pa.ChunkedArray, why: str) -> None:
    found = pc.filter(numbers, broken)
    if len(found):
        value = shown_time(found[0].as_py(), field.type)
        raise RefusedValueError(f"{field.name} = {value} {why}")


def _is_utf8(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether all of a text column is text; much cheaper than a look at each value."""
    large = pa.types.is_large_string(column.type)
    kind = pa.large_binary() if large else pa.binary()
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    try:
        for chunk in chunks:
            chunk.view(kind).cast(column.type)
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _line(row: dict[str, Any]) -> str:
    return json.dumps(_plain(row), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value in its JSON form."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case decimal.Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            return value.isoformat(timespec="microseconds")
        case datetime.date():
            return value.isoformat()
        case _:
            return value
