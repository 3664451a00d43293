"""The types of columns, and the rows that they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
EXACT_INTEGER_BITS = {"float": 24, "double": 53}


class Encoding(Enum):
    """The encoding of a column's values."""

    TEXT = auto()
    JSON = auto()
    ENUM = auto()
    SET = auto()
    UUID = auto()
    INET4 = auto()
    INET6 = auto()
    PLAIN = auto()
    FLOAT = auto()
    BOOL = auto()
    BIT = auto()
    BINARY = auto()
    DATE = auto()
    TIMESTAMP = auto()
    TIME = auto()


@dataclass(frozen=True)
class ColumnType:
    """Types of columns that take the same rows.

    Attributes:
        columns: the types.
        rows: the encoding of each kind of rows that they take.
        refused: values of such rows that are refused all the same.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, Encoding]
    refused: str


_EXACT = {"integer": Encoding.PLAIN, "decimal": Encoding.PLAIN}
_LENGTH = "text that is too long, or that its character set lacks"
COLUMN_TYPES = (
    ColumnType(
        tuple(INTEGER_BITS),
        {"boolean": Encoding.BOOL, **_EXACT},
        "outside the column's range; digits after the point",
    ),
    ColumnType(
        ("decimal",), _EXACT, "outside the column's range; more digits after the point than it has"
    ),
    ColumnType(
        ("float",),
        {"integer": Encoding.FLOAT, "float": Encoding.FLOAT},
        "integers beyond 2^24; NaN, infinity",
    ),
    ColumnType(
        ("double",),
        {"integer": Encoding.FLOAT, "float": Encoding.FLOAT, "double": Encoding.FLOAT},
        "integers beyond 2^53; NaN, infinity",
    ),
    ColumnType(
        ("bit",),
        {"boolean": Encoding.BIT, "integer": Encoding.BIT, "decimal": Encoding.BIT},
        "negative, or of more bits; digits after the point",
    ),
    ColumnType(("year",), _EXACT, "years before 1901 and after 2155"),
    ColumnType(("char",), {"string": Encoding.TEXT}, f"{_LENGTH}; a space at the end"),
    ColumnType(
        ("varchar", "tinytext", "text", "mediumtext", "longtext"),
        {"string": Encoding.TEXT},
        _LENGTH,
    ),
    ColumnType(("json",), {"string": Encoding.JSON}, "documents that would be others (below)"),
    ColumnType(("enum",), {"string": Encoding.ENUM}, "what is not a label, letter for letter"),
    ColumnType(
        ("set",),
        {"string": Encoding.SET},
        "what is not labels with commas, in their order, each once",
    ),
    ColumnType(("uuid",), {"string": Encoding.UUID}, "other than small letters with four hyphens"),
    ColumnType(("inet4",), {"string": Encoding.INET4}, "leading zeros"),
    ColumnType(
        ("inet6",), {"string": Encoding.INET6}, "an address that is not written as MariaDB does"
    ),
    ColumnType(("binary",), {"binary": Encoding.BINARY}, "of another length"),
    ColumnType(
        ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        {"binary": Encoding.BINARY},
        "too long",
    ),
    ColumnType(("date",), {"date": Encoding.DATE}, "years before 1000 and after 9999"),
    ColumnType(
        ("datetime",),
        {"date": Encoding.DATE, "timestamp": Encoding.TIMESTAMP},
        "the same years; more digits of a second than it has",
    ),
    ColumnType(
        ("timestamp",),
        {"timestamp": Encoding.TIMESTAMP},
        "before 1970 and after January 2038; more digits of a second than it has",
    ),
    ColumnType(("time",), {"time": Encoding.TIME}, "more digits of a second than it has"),
)
