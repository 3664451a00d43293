"""Checks the columns of rows against those of a table before the first row is written.

Types are as Paimon's schema files have them: a text such as `BIGINT NOT NULL`, or an object for a
type that holds others. Nothing here needs pypaimon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from twophase.errors import ConfigError
from twophase.sinks.common.lake.rows import duplicates, fields_of, refusal_of_struct

Kind = str | Mapping[str, Any]
"""A type in a schema file."""

PLAIN: Sequence[str] = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"),
    *("DECIMAL(9, 2)", "DECIMAL(38, 2)", "CHAR(9)", "VARCHAR(9)", "STRING"),
    *("BINARY(9)", "VARBINARY(9)", "BYTES", "DATE", "TIME(0)"),
    *("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)"),
)
"""The types of columns that are not nested, for the page."""

_RESERVED = {"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID", "rowkind"}
_RESERVED_PREFIX = "_KEY_"
_LENGTHS = {"VARCHAR(2147483647)": "STRING", "VARBINARY(2147483647)": "BYTES", "INTEGER": "INT"}
_UNBOUNDED = {
    "TIMESTAMP": "TIMESTAMP(6)",
    "TIMESTAMP_LTZ": "TIMESTAMP_LTZ(6)",
    "CHAR": "STRING",
    "VARCHAR": "STRING",
    "BINARY": "BYTES",
    "VARBINARY": "BYTES",
}
"""Of types of a size that Spark's rows never have, the one that they have."""
_NANOSECONDS = "(7)", "(8)", "(9)"
_WIDER = {
    ("TINYINT", "SMALLINT"),
    ("TINYINT", "INT"),
    ("TINYINT", "BIGINT"),
    ("SMALLINT", "INT"),
    ("SMALLINT", "BIGINT"),
    ("INT", "BIGINT"),
    ("FLOAT", "DOUBLE"),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
_IN_ZONE = re.compile(r"TIMESTAMP(\(\d\))? WITH LOCAL TIME ZONE")
_INSIDE = {"ARRAY": ("element",), "MAP": ("key", "value")}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        number: its id.
        name: its name.
        kind: its type.
        default: whether it has a default value.
    """

    number: int
    name: str
    kind: Kind
    default: bool = False

    @property
    def required(self) -> bool:
        """Whether each row needs a value."""
        return is_required(self.kind)


def check_new(rows: pa.Schema) -> None:
    """Check that a new table can have columns for rows.

    Raises:
        ConfigError: a column has a type that cannot be stored, names differ in case only, or one is
            Paimon's own.
    """
    problems = [
        f"column {field.name!r}: {reason}"
        for field in rows
        if (reason := _refusal_of_new(field.type))
    ]
    problems += [*duplicates(rows.names), *_reserved(rows.names)]
    if problems:
        raise refused(problems)


def check_rows(rows: pa.Schema, columns: Sequence[Column]) -> None:
    """Check that rows can be written so that they read back unchanged.

    Raises:
        ConfigError: a column cannot, or the table lacks it or needs one that the rows lack.
    """
    problems = [*duplicates(rows.names), *_reserved(rows.names)]
    known = {column.name: column for column in columns}
    for field in rows:
        if field.name not in known:
            problems.append(f"column {field.name!r} is not in the table")
        elif reason := refusal(field.type, known[field.name].kind):
            problems.append(f"column {field.name!r}: {reason}")
    for name in known.keys() - {*rows.names}:
        if known[name].required:
            problems.append(f"column {name!r} is required, and the rows lack it")
        elif known[name].default:
            problems.append(f"column {name!r} has a default value, and the rows lack it")
    if problems:
        raise refused(problems)


def _reserved(names: Sequence[str]) -> list[str]:
    """Return which names are Paimon's own, as sentences: a table with one is not read back."""
    return [
        f"column {name!r} has a name that Paimon keeps for itself"
        for name in names
        if name in _RESERVED or name.startswith(_RESERVED_PREFIX)
    ]


def refused(problems: list[str]) -> ConfigError:
    """Return the error of rows that cannot be written to a table."""
    return ConfigError(
        f"The rows do not fit the Paimon table: {'; '.join(sorted(problems))}.",
        remedy="change the rows in the query or the sink's transform, or alter the table.",
    )


def kind_of(kind: pa.DataType) -> str | None:
    """Return the narrowest type for a plain value; None if there is none."""
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_signed_integer(kind):
        return {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[kind.bit_width]
    if pa.types.is_float32(kind):
        return "FLOAT"
    if pa.types.is_float64(kind):
        return "DOUBLE"
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "STRING"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "BYTES"
    if pa.types.is_date32(kind):
        return "DATE"
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "TIMESTAMP_LTZ(6)" if kind.tz else "TIMESTAMP(6)"
    return None


def _refusal_of_new(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _refusal_of_new(kind.value_type)
    if pa.types.is_map(kind):
        return _refusal_of_new(kind.key_type) or _refusal_of_new(kind.item_type)
    if pa.types.is_struct(kind):
        if reason := refusal_of_struct(fields_of(kind)):
            return reason
        return next(filter(None, (_refusal_of_new(one.type) for one in fields_of(kind))), "")
    return "" if kind_of(kind) else f"{kind} is not supported; cast it"


def optional(kind: pa.DataType) -> pa.DataType:
    """Return a type all of whose values may be null, in which a new table stores others."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(optional(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(optional(kind.key_type), optional(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, optional(one.type)) for one in fields_of(kind)])
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def refusal(kind: pa.DataType, column: Kind) -> str:
    """Return why values cannot be stored unchanged in a column; empty if they can."""
    name = name_of(column)
    match column:
        case Mapping() if name == "ARRAY" and (pa.types.is_list(kind) or _is_large_list(kind)):
            return _refusal_inside(kind.value_type, column["element"])
        case Mapping() if name == "MAP" and pa.types.is_map(kind):
            return refusal(kind.key_type, column["key"]) or _refusal_inside(
                kind.item_type, column["value"]
            )
        case Mapping() if name == "ROW" and pa.types.is_struct(kind):
            return _refusal_of_fields(kind, column)
        case _:
            given = kind_of(kind)
            if fits(given, name):
                return ""
            if given is not None and _UNBOUNDED.get(name.partition("(")[0]) == given:
                if name.endswith(_NANOSECONDS):
                    return f"no rows fit {name}, which holds more than {kind}; name another table"
                return f"no rows fit {name}, which holds less than {kind}; alter it to {given}"
            return f"{kind} does not fit {name}; cast it"


def _is_large_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_list(kind))


def _refusal_inside(kind: pa.DataType, column: Kind) -> str:
    if is_required(column):
        return f"values inside it are required ({name_of(column)}), which is not checked here"
    return refusal(kind, column)


def _refusal_of_fields(kind: pa.DataType, column: Mapping[str, Any]) -> str:
    if reason := refusal_of_struct(fields_of(kind)):
        return reason
    given = {field.name: field.type for field in fields_of(kind)}
    known = {field["name"]: field["type"] for field in column["fields"]}
    if given.keys() != known.keys():
        return f"its fields are {[*given]}, those of the table {[*known]}"
    reasons = (_refusal_inside(given[name], known[name]) for name in known)
    return next((reason for reason in reasons if reason), "")


def fits(given: str | None, column: str) -> bool:
    """Return whether a column of a plain type holds all values of another one unchanged."""
    if given is None:
        return False
    narrow, wide = _DECIMAL.fullmatch(given), _DECIMAL.fullmatch(column)
    if narrow and wide:
        return narrow[2] == wide[2] and int(narrow[1]) <= int(wide[1])
    return given == column or (given, column) in _WIDER


def shown(kind: pa.DataType) -> str:
    """Return the column of a new table for rows of a type that it can have, for the page."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{shown(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{shown(kind.key_type)}, {shown(kind.item_type)}>"
    if pa.types.is_struct(kind):
        inside = (f"{one.name} {shown(one.type)}" for one in fields_of(kind))
        return f"ROW<{', '.join(inside)}>"
    return kind_of(kind) or ""


def name_of(kind: Kind) -> str:
    """Return the name of a type, without what it holds and whether it is required."""
    name = (kind if isinstance(kind, str) else str(kind["type"])).removesuffix(" NOT NULL")
    if found := _IN_ZONE.fullmatch(name):
        return f"TIMESTAMP_LTZ{found[1] or '(6)'}"
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return f"{name}(6)"
    return _LENGTHS.get(name, name)


def is_required(kind: Kind) -> bool:
    """Return whether a type has no null."""
    return (kind if isinstance(kind, str) else str(kind["type"])).endswith(" NOT NULL")


def text_of(kind: Kind) -> str:
    """Return a type as one text, the same for the same type."""
    name, end = name_of(kind), " required" if is_required(kind) else ""
    if isinstance(kind, str):
        return f"{name}{end}"
    inside = [text_of(kind[part]) for part in _INSIDE.get(name, ())]
    inside += [f"{field['id']} {text_of(field['type'])}" for field in kind.get("fields", ())]
    return f"{name}<{', '.join(inside)}>{end}"
