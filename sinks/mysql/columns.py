"""The columns of the target table as the server describes them."""

from __future__ import annotations

from dataclasses import dataclass

from twophase.sinks.mysql.client.session import Row, Session

_COLUMNS = (
    "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,"
    " COLLATION_NAME, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE,"
    " DATETIME_PRECISION FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)


@dataclass(frozen=True)
class Column:
    """One column of the target.

    Attributes:
        name: as the server spells it.
        data_type: `int`, `varchar`, `datetime` and so on, in lower case.
        column_type: the full type, such as `int(10) unsigned`, in lower case.
        nullable: NULL is allowed.
        required: a row without a value for it is refused.
        generated: the server computes it.
        auto_increment: the server numbers rows that have no value for it.
        collation: of a text column.
        length: bytes of a binary, characters of a text column.
        precision: digits of a number.
        scale: digits after the decimal point; None for a plain FLOAT or DOUBLE.
        fraction_digits: fractional digits of a second that it keeps.
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

    @property
    def unsigned(self) -> bool:
        """True if the column takes no negative numbers."""
        return "unsigned" in self.column_type


def read_columns(session: Session, schema: str, name: str) -> tuple[Column, ...]:
    """Return the columns of a table, in its order."""
    return tuple(map(_column, session.rows(_COLUMNS, (schema, name))))


def _column(row: Row) -> Column:
    name, data_type, column_type, is_nullable, default, found_extra, collation, *sizes = row
    length, precision, scale, fraction = map(_number, sizes)
    extra = str(found_extra).lower()
    # MySQL marks a default that is an expression with DEFAULT_GENERATED: such a column takes
    # values like any other.
    generated = "generated" in extra.replace("default_generated", "") or "row start" in extra
    auto_increment = "auto_increment" in extra
    nullable = is_nullable == "YES"
    return Column(
        name=str(name),
        data_type=str(data_type).lower(),
        column_type=str(column_type).lower(),
        nullable=nullable,
        required=not (nullable or default is not None or generated or auto_increment),
        generated=generated,
        auto_increment=auto_increment,
        collation=collation,
        length=length,
        precision=precision,
        scale=scale,
        fraction_digits=fraction or 0,
    )


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))
