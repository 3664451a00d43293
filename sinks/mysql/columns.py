"""The columns of the target table as the server describes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from twophase.sinks.mysql.client.session import Row, Session

_COLUMNS = (
    "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,"
    " COLLATION_NAME, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"
    " DATETIME_PRECISION FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
# Both servers write texts like this, whatever sql_mode says about backslashes.
_TEXT = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROLS = {"0": "\0", "n": "\n", "r": "\r"}
_NUMBER = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?|b'[01]+'")


@dataclass(frozen=True)
class Column:
    """One column of the target.

    Attributes:
        name: as the server spells it.
        data_type: `int`, `varchar`, `datetime` and so on, in lower case.
        column_type: the full type, such as `int(10) unsigned` or `enum('new','paid')`.
        nullable: NULL is allowed.
        required: a row without a value for it is refused.
        generated: the server computes it.
        auto_increment: the server numbers rows that have no value for it.
        collation: of a text column.
        length: bytes of a binary, characters of a text column.
        precision: digits of a number, bits of a BIT.
        scale: digits after the decimal point; None for a plain FLOAT or DOUBLE.
        fraction_digits: fractional digits of a second that it keeps.
        default: the value, or the expression, that a row without a value for it gets.
        default_is_expression: the server computes it for each row.
        default_is_first_label: of an ENUM that declares none and takes no NULL.
    """

    name: str
    data_type: str
    column_type: str
    nullable: bool = True
    required: bool = False
    generated: bool = False
    auto_increment: bool = False
    collation: str | None = None
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    fraction_digits: int = 0
    default: str | None = field(default=None, compare=False)
    default_is_expression: bool = field(default=False, compare=False)
    default_is_first_label: bool = field(default=False, compare=False)

    @property
    def unsigned(self) -> bool:
        """True if the column takes no negative numbers."""
        return "unsigned" in self.column_type

    @property
    def labels(self) -> list[str]:
        """The labels of an ENUM or a SET, in their order.

        The servers show each character beyond U+FFFF in them as a question mark.
        """
        return _texts(self.column_type)


def read_columns(session: Session, schema: str, name: str) -> tuple[Column, ...]:
    """Return the columns of a table, in its order."""
    rows = session.rows(_COLUMNS, (schema, name))
    return tuple(_column(row, is_mariadb=session.is_mariadb) for row in rows)


def _column(row: Row, *, is_mariadb: bool) -> Column:
    name, data_type, column_type, is_nullable, default, found_extra, collation, *sizes = row
    length, precision, scale, fraction = map(_number, sizes)
    extra = str(found_extra).lower()
    # MySQL marks a default that is an expression with DEFAULT_GENERATED: such a column takes
    # values like any other.
    generated = "generated" in extra.replace("default_generated", "") or "row start" in extra
    auto_increment = "auto_increment" in extra
    nullable = is_nullable == "YES"
    data_type = str(data_type).lower()
    value, is_expression = _default(default, data_type, extra, is_mariadb=is_mariadb)
    # the one type that has a default in strict mode without declaring it
    takes_first_label = data_type == "enum" and not nullable and default is None
    if takes_first_label:
        value = _texts(str(column_type))[0]
    return Column(
        name=str(name),
        data_type=data_type,
        column_type=str(column_type),
        nullable=nullable,
        required=not (nullable or value is not None or generated or auto_increment),
        generated=generated,
        auto_increment=auto_increment,
        collation=collation,
        length=length,
        precision=precision,
        scale=scale,
        fraction_digits=fraction or 0,
        default=value,
        default_is_expression=is_expression,
        default_is_first_label=takes_first_label,
    )


def _default(
    text: str | None, data_type: str, extra: str, *, is_mariadb: bool
) -> tuple[str | None, bool]:
    """Return the default, and whether it is an expression.

    MySQL shows a value as it is, and an expression with escapes; MariaDB shows both as in SQL.
    """
    if not is_mariadb:
        is_now = data_type in ("datetime", "timestamp") and str(text).startswith("CURRENT_TIME")
        is_expression = is_now or "default_generated" in extra
        return (re.sub(r"\\(.)", r"\1", str(text)), True) if is_expression else (text, False)
    if text is None or text == "NULL":
        return None, False
    if _TEXT.fullmatch(text):
        return _texts(text)[0], False
    return text, _NUMBER.fullmatch(text) is None


def _texts(sql: str) -> list[str]:
    """Return what stands between quotes."""
    return [_ESCAPED.sub(_unescaped, text) for text in _TEXT.findall(sql)]


def _unescaped(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _CONTROLS.get(found[1], found[1])


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))
