"""The mapping from Arrow types to columns, decided before the first row.

A pair fits if every value either arrives unchanged or is refused: by the server, with a warning
that the load counts, or by our own check where the server would silently change the value (rounded
digits, padded BINARY and CHAR, labels in other letters). A type that never fits is refused here, by
name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from decimal import Decimal
from typing import Any

import pyarrow as pa

from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.column_types import (
    COLUMN_TYPES,
    EXACT_INTEGER_BITS,
    INTEGER_BITS,
    Encoding,
)

Bounds = tuple[int | Decimal, int | Decimal]
"""The smallest and the largest number that a column keeps."""

_DECIMAL128_DIGITS, _DECIMAL256_DIGITS = 38, 76
_YEARS = (1901, 2155)
_MILLISECOND_DIGITS, _MICROSECOND_DIGITS = 3, 6
_UP_TO_FFFF = ("ascii", "latin", "utf8mb3", "utf8_", "ucs2")
"""Character sets whose texts the servers show as they are."""
_CHANGED = {"cp932": "\u6661"}
"""Of a character set, the one character that both servers store as another one, without a warning:
of all sets that both have and all characters up to U+FFFF.
"""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CHARACTER_SET = re.compile(r"\b_\w+(?=')")
_TO_ESCAPE = re.compile(r"[\\'\x00-\x1f]")
_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "boolean": pa.types.is_boolean,
    "integer": pa.types.is_integer,
    "decimal": pa.types.is_decimal,
    "float": lambda kind: pa.types.is_floating(kind) and kind.bit_width == 32,
    "double": pa.types.is_float64,
    "string": pa.types.is_string,
    "binary": pa.types.is_binary,
    "date": pa.types.is_date,
    "timestamp": pa.types.is_timestamp,
    "time": pa.types.is_time,
}
_BY_COLUMN = {name: one for one in COLUMN_TYPES for name in one.columns}
_GEOMETRIES = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"}
    | {"multipolygon", "geometrycollection", "geomcollection"}
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
        fraction_digits: digits after the point, of a second or of a decimal, that the column keeps.
        padded: values that the column would pad or strip are refused.
        length: bytes of a BINARY column.
        bounds: the smallest and the largest number that the column keeps, if rows can exceed them.
        labels: the number of each label of an ENUM or a SET.
        changed: a character of text that the server would store as another one; empty if there is
            none.
        instead_of_null: what to do about rows without a value, if the column takes no NULL.
    """

    field: str
    column: str
    type: pa.DataType
    encoding: Encoding
    nullable: bool
    fraction_digits: int = 6
    padded: bool = False
    length: int | None = None
    bounds: Bounds | None = None
    labels: Mapping[str, int] = attribute(default_factory=dict)
    changed: str = ""
    instead_of_null: str = ""


def plan_column(field: pa.Field, column: Column) -> ColumnPlan | str:
    """Plan how `field` fills `column`.

    Returns:
        The plan, or why it does not fit and what to do.
    """
    plain = _plain(field.type)
    encoding = _encoding(field, plain, column)
    if isinstance(encoding, str):
        return f"{field.name}: {field.type} cannot be stored in {column.column_type}: {encoding}"
    if pa.types.is_floating(plain) and column.data_type == "double":
        plain = pa.float64()  # the shortest text of a float is another double
    is_decimal = pa.types.is_decimal(plain)
    return ColumnPlan(
        field=field.name,
        column=column.name,
        type=plain,
        encoding=encoding,
        nullable=column.nullable,
        fraction_digits=column.scale or 0 if is_decimal else column.fraction_digits,
        padded=column.data_type in ("char", "binary"),
        length=column.length,
        bounds=_bounds(plain, column),
        labels=_labels(column),
        changed=next((_CHANGED[name] for name in _CHANGED if _is_in(column, name)), ""),
        instead_of_null="" if column.nullable else _instead_of_null(field, plain, column),
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
    if pa.types.is_decimal(kind):
        digits, scale = kind.precision - min(kind.scale, 0), max(kind.scale, 0)
        if digits <= _DECIMAL128_DIGITS:
            return pa.decimal128(digits, scale)
        return pa.decimal256(min(digits, _DECIMAL256_DIGITS), scale)
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        # MySQL keeps microseconds; the cast from nanoseconds refuses to lose digits.
        return pa.timestamp("us" if kind.unit == "ns" else kind.unit)
    if pa.types.is_time(kind):
        return pa.time64("us") if kind.unit == "ns" else kind
    return kind


def _encoding(field: pa.Field, kind: pa.DataType, column: Column) -> Encoding | str:
    """Return the encoding, or the reason why there is none."""
    if column.generated:
        return "the server computes this column; drop it from the rows."
    if pa.types.is_null(kind):
        if column.nullable:
            return Encoding.PLAIN
        return f"the column is NOT NULL: {_instead_of_null(field, kind, column)}"
    if obstacle := _obstacle(column):
        return obstacle
    found = next((one for one, is_kind in _KINDS.items() if is_kind(kind)), None)
    if found is None:
        return (
            "no column type of MySQL holds it unchanged; turn it into a string, "
            "for example with to_json."
        )
    takes = _BY_COLUMN[column.data_type].rows
    if found in takes:
        return takes[found]
    return f"such a column takes {_any_of(list(takes))} rows; cast them, or alter the column."


def _any_of(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _obstacle(column: Column) -> str | None:
    """Return why the sink writes no rows at all to a column, if it does not."""
    if column.data_type in _GEOMETRIES:
        return (
            "the sink writes no geometries; write its text to a column of the type TEXT, and "
            f"make this one of it: {column.column_type.upper()} AS (ST_GeomFromText(...)) STORED."
        )
    if column.data_type not in _BY_COLUMN:
        return "the sink does not know this type; make it a TEXT or a BLOB."
    if column.data_type in EXACT_INTEGER_BITS and column.scale is not None:
        return (
            f"a column with {column.scale} digits after the decimal point would round; "
            "make it a plain DOUBLE, or a DECIMAL."
        )
    if column.column_type == "year(2)":
        return "it keeps two digits; make it a YEAR."
    if column.data_type in ("enum", "set") and column.collation in (None, "binary"):
        return "its labels are bytes; give it a character set."
    return None


def _labels(column: Column) -> Mapping[str, int]:
    """Return the numbers of the labels that are known exactly."""
    if column.data_type not in ("enum", "set"):
        return {}
    first = 0 if column.data_type == "set" else 1
    return {
        label: 2**number if column.data_type == "set" else number
        for number, label in enumerate(column.labels, first)
        if not _may_be_another(label, column)
    }


def _may_be_another(text: str, column: Column) -> bool:
    """Return whether a question mark may stand for a character beyond U+FFFF."""
    return "?" in text and not _is_in(column, _UP_TO_FFFF)


def _is_in(column: Column, character_sets: str | tuple[str, ...]) -> bool:
    """Return whether a column's collation is one of these character sets."""
    return str(column.collation).startswith(character_sets)


def _bounds(kind: pa.DataType, column: Column) -> Bounds | None:
    """Return the bounds of a column; None for rows of a type whose numbers never exceed them."""
    if pa.types.is_integer(kind):
        is_signed = pa.types.is_signed_integer(kind)
        most: int | Decimal = 2 ** (kind.bit_width - is_signed) - 1
        least: int | Decimal = -most - 1 if is_signed else 0
    elif pa.types.is_decimal(kind):
        least, most = _decimals(kind.precision, kind.scale)
    else:
        return None
    low, high = _kept(column)
    return None if low <= least and most <= high else (low, high)


def _kept(column: Column) -> Bounds:
    if column.data_type == "year":
        return _YEARS
    if column.data_type == "bit":
        return 0, 2 ** (column.precision or 1) - 1
    low: int | Decimal
    high: int | Decimal
    if column.data_type == "decimal":
        low, high = _decimals(column.precision or 0, column.scale or 0)
    elif column.data_type in EXACT_INTEGER_BITS:
        high = 2 ** EXACT_INTEGER_BITS[column.data_type]
        low = -high
    else:
        half = 2 ** (INTEGER_BITS[column.data_type] - 1)
        low, high = (0, 2 * half - 1) if column.unsigned else (-half, half - 1)
    return (0, high) if column.unsigned else (low, high)


def _decimals(digits: int, scale: int) -> tuple[Decimal, Decimal]:
    # from its digits: arithmetic would round to 28 of them
    most = Decimal((0, (9,) * digits, -scale))
    return most.copy_negate(), most


def _instead_of_null(field: pa.Field, kind: pa.DataType, column: Column) -> str:
    """Return both remedies: a value for such rows, and rows without the column.

    Args:
        field: the column of the rows.
        kind: its type, without a dictionary.
        column: takes no NULL.
    """
    name = field.name
    name = name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
    if column.auto_increment:
        return f"leave {name} out of the rows: the server numbers them."
    default = _default_sql(field, kind, column)
    fill = f"fill it before the sink, with coalesce({name}, {default or '...'}) AS {name} in SQL"
    if column.default is None:
        return f"{fill}, or make the column nullable."
    return f"{fill}, or leave {name} out of the rows: the server then fills in its default."


def _default_sql(field: pa.Field, kind: pa.DataType, column: Column) -> str | None:
    """Return a column's default in Spark's SQL; an expression as the server shows it."""
    text = column.default
    is_text = pa.types.is_string(kind) or (pa.types.is_null(kind) and column.collation is not None)
    if text is None or pa.types.is_binary(kind) or _may_be_another(text, column):
        return None  # the servers show it only in part
    if column.default_is_expression:
        if pa.types.is_timestamp(kind) and text.lower().startswith("current_timestamp"):
            return _now_sql(field, column.fraction_digits)
        return _CHARACTER_SET.sub("", text)
    if column.data_type == "bit":
        text = str(int(text[2:-1], 2))  # b'101'
    if pa.types.is_boolean(kind):
        return str(text != "0").lower()
    if pa.types.is_date(kind):
        return f"DATE'{text}'"
    if pa.types.is_time(kind):
        return f"TIME'{text}'"
    if pa.types.is_timestamp(kind):
        return f"TIMESTAMP'{text} UTC'" if _has_zone(field) else f"TIMESTAMP_NTZ'{text}'"
    if is_text:
        return "'" + _TO_ESCAPE.sub(_escaped, text) + "'"
    return text


def _now_sql(field: pa.Field, digits: int) -> str:
    """Return the time of a query with no more digits of a second than these."""
    now = "current_timestamp()"
    if digits < _MICROSECOND_DIGITS:
        unit = "SECOND" if digits < _MILLISECOND_DIGITS else "MILLISECOND"
        now = f"date_trunc('{unit}', {now})"
    return now if _has_zone(field) else f"CAST({now} AS TIMESTAMP_NTZ)"


def _has_zone(field: pa.Field) -> bool:
    return getattr(field.type, "tz", None) is not None


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    return "\\" + letter if letter in "\\'" else f"\\u{ord(letter):04x}"
