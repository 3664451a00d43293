"""The mapping from Arrow types to columns, decided before the first row.

A pair fits if every value either arrives unchanged or is refused: by the server, with a warning
that the load counts, or by our own check where the server would silently change the value (rounded
fractions of a second, padded BINARY and CHAR). A type that fits only in part is
refused here, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pyarrow as pa

from twophase.sinks.mysql.columns import Column

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXT = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_EXACT_INTEGER_BITS = {"float": 24, "double": 53}
_DECIMAL_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


class Encoding(Enum):
    """The encoding of a column's values."""

    TEXT = auto()
    JSON = auto()
    PLAIN = auto()
    FLOAT = auto()
    BOOL = auto()
    BIT = auto()
    BINARY = auto()
    DATE = auto()
    TIMESTAMP = auto()
    TIME = auto()


# A JSON column of MariaDB is a LONGTEXT with a check, and keeps the text.
_BY_COLUMN_TYPE: tuple[tuple[Callable[[Any], bool], Collection[str], Encoding, str], ...] = (
    (
        pa.types.is_string,
        _TEXT,
        Encoding.TEXT,
        "a string needs CHAR, VARCHAR, TEXT or JSON; cast it.",
    ),
    (
        pa.types.is_binary,
        _BINARY,
        Encoding.BINARY,
        "bytes need BINARY, VARBINARY or BLOB; cast it.",
    ),
    (
        pa.types.is_date,
        ("date", "datetime"),
        Encoding.DATE,
        "a date needs DATE or DATETIME; cast it.",
    ),
    (
        pa.types.is_timestamp,
        ("datetime", "timestamp"),
        Encoding.TIMESTAMP,
        "a timestamp needs DATETIME(6) or TIMESTAMP(6); cast it.",
    ),
    (
        pa.types.is_time,
        ("time",),
        Encoding.TIME,
        "a time needs TIME(6); cast it.",
    ),
)


@dataclass(frozen=True)
class ColumnPlan:
    """The plan by which one column of the rows fills one column of the table.

    Attributes:
        field: its name in the rows.
        column: its name in the table.
        type: every batch is first cast to this type.
        encoding: of its values.
        nullable: NULL is allowed.
        fraction_digits: fractional digits of a second that the column keeps.
        padded: values that the column would pad or strip are refused.
        length: bytes of a BINARY column.
    """

    field: str
    column: str
    type: pa.DataType
    encoding: Encoding
    nullable: bool
    fraction_digits: int = 6
    padded: bool = False
    length: int | None = None


def plan_column(field: pa.Field, column: Column) -> ColumnPlan | str:
    """Plan how `field` fills `column`.

    Returns:
        The plan, or why it does not fit and what to do.
    """
    plain = _plain(field.type)
    encoding = _encoding(plain, column)
    if isinstance(encoding, str):
        return f"{field.name}: {field.type} cannot be stored in {column.column_type}: {encoding}"
    if pa.types.is_floating(plain) and column.data_type == "double":
        plain = pa.float64()  # the shortest text of a float is another double
    return ColumnPlan(
        field=field.name,
        column=column.name,
        type=plain,
        encoding=encoding,
        nullable=column.nullable,
        fraction_digits=column.fraction_digits,
        padded=column.data_type in ("char", "binary"),
        length=column.length,
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type that a batch is cast to: one per family, with no dictionary or time zone."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if (
        pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return pa.binary()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        # MySQL keeps microseconds; the cast from nanoseconds refuses to lose digits.
        return pa.timestamp("us" if kind.unit == "ns" else kind.unit)
    if pa.types.is_time(kind):
        return pa.time64("us") if kind.unit == "ns" else kind
    return kind


def _encoding(kind: pa.DataType, column: Column) -> Encoding | str:
    """Return the encoding, or the reason why there is none."""
    if column.generated:
        return "the server computes this column; drop it from the rows."
    if pa.types.is_null(kind):
        return Encoding.PLAIN if column.nullable else "the column is NOT NULL."
    if pa.types.is_boolean(kind):
        return _for_boolean(column)
    if pa.types.is_integer(kind):
        return _for_integer(kind, column)
    if pa.types.is_floating(kind):
        return _for_float(kind, column)
    if pa.types.is_decimal(kind):
        return _for_decimal(kind, column)
    if pa.types.is_string(kind) and column.data_type == "json":
        return Encoding.JSON
    for is_kind, fitting, encoding, reason in _BY_COLUMN_TYPE:
        if is_kind(kind):
            return encoding if column.data_type in fitting else reason
    return (
        "no column type of MySQL holds it unchanged; turn it into a string, "
        "for example with to_json."
    )


def _for_boolean(column: Column) -> Encoding | str:
    if column.data_type == "bit":
        return Encoding.BIT
    if column.data_type in _INTEGER_BITS:
        return Encoding.BOOL
    return "a boolean needs BOOLEAN, TINYINT or BIT; cast it."


def _for_integer(kind: pa.DataType, column: Column) -> Encoding | str:
    bits = kind.bit_width
    signed = pa.types.is_signed_integer(kind)
    if column.data_type in _INTEGER_BITS:
        room = _INTEGER_BITS[column.data_type]
        # Spark has no unsigned integers: a value above half an unsigned column's range arrives as
        # an integer of twice the width. Values outside the range are refused row by row.
        if column.unsigned and signed:
            room = min(2 * room, 64)
        elif not column.unsigned and not signed:
            room -= 1
        if bits <= room:
            return Encoding.PLAIN
        return "values would not fit; widen the column or cast the rows."
    if column.data_type == "decimal":
        room = (column.precision or 0) - (column.scale or 0)
        digits = _DECIMAL_DIGITS[bits]
        return Encoding.PLAIN if room >= digits else f"it needs {digits} digits before the point."
    if column.data_type in _EXACT_INTEGER_BITS and column.scale is None:
        exact = bits - signed <= _EXACT_INTEGER_BITS[column.data_type]
        return Encoding.FLOAT if exact else "large integers would be rounded; cast it."
    return "an integer needs an integer or DECIMAL column; cast it."


def _for_float(kind: pa.DataType, column: Column) -> Encoding | str:
    if column.data_type not in _EXACT_INTEGER_BITS:
        return "a floating-point number needs DOUBLE (or FLOAT for 32 bits); cast it."
    if column.scale is not None:
        return (
            f"a column with {column.scale} digits after the decimal point would round; "
            "make it a plain DOUBLE."
        )
    if kind.bit_width > 32 and column.data_type == "float":
        return "a FLOAT would round it; make the column a DOUBLE or cast the rows to float."
    return Encoding.FLOAT


def _for_decimal(kind: pa.DataType, column: Column) -> Encoding | str:
    if column.data_type != "decimal":
        return "a decimal needs DECIMAL; cast it."
    precision, scale = column.precision or 0, column.scale or 0
    if scale < kind.scale or precision - scale < kind.precision - kind.scale:
        return (
            f"make the column DECIMAL({kind.precision},{max(kind.scale, 0)}) or wider, "
            "or cast the rows."
        )
    return Encoding.PLAIN
