"""Partition values as folder names, the way Hive and Spark write them.

The characters to escape are those of Spark's `ExternalCatalogUtils.charToEscape`, and NUL, which no
file name can hold. Null has a name of its own. Values that would read back as other values are
refused: an empty string, the name of null itself, and names longer than file systems allow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from twophase.internals.redaction import shown

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
"""The name of a null value, and for Hive and Spark also of an empty string."""

MAX_NAME_BYTES = 255

_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\\\[\\]^{]")

Values = tuple[str | None, ...]
"""One partition: the value of each partition column as text."""


REMEDY = "correct or filter these rows before the sink."


def as_null_remedy(column: str, value: str) -> str:
    """Return what to do about a value that would read back as null."""
    name = column if column.isidentifier() else f"`{column.replace('`', '``')}`"
    return (
        f"write null for it, with nullif({name}, '{value}') in the query or the sink's transform; "
        "or filter these rows before the sink."
    )


class RefusedValueError(ValueError):
    """A value cannot be written so that it reads back as the same value.

    Args:
        what: the value, and why.
        remedy: what to do about it.

    Attributes:
        remedy: as given.
    """

    def __init__(self, what: str, remedy: str = REMEDY) -> None:
        super().__init__(what)
        self.remedy = remedy


def escape(text: str) -> str:
    """Escape the characters that Hive escapes in the name of a partition's folder."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def folder_name(column: str, value: str | None) -> str:
    """Return the folder name of one partition value.

    The name begins with the column's, so it is never `.` or `..`, and holds no `/`: it
    cannot leave its parent.

    Raises:
        RefusedValueError: it would read back as another value, or not at all.
    """
    if value in ("", NULL_NAME):
        raise RefusedValueError(
            f"{column} = {shown(value)} would read back as null", as_null_remedy(column, value)
        )
    try:
        name = f"{escape(column)}={NULL_NAME if value is None else escape(value)}"
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise RefusedValueError(f"{column} = {shown(value)} is not valid text") from error
    if length > MAX_NAME_BYTES:
        raise RefusedValueError(
            f"{column} = {shown(value, 40)} makes a folder name of {length} bytes; "
            f"the limit is {MAX_NAME_BYTES}"
        )
    return name


def folders(columns: Sequence[str], values: Values) -> tuple[str, ...]:
    """Return the folder names of one partition, from the outermost to the innermost.

    Raises:
        RefusedValueError: as `folder_name`.
    """
    return tuple(folder_name(column, value) for column, value in zip(columns, values, strict=True))


def specified(columns: Sequence[str], spec: Mapping[str, str]) -> Values:
    """Return the values of a partition in a catalog, whose names may be in another case."""
    given = {name.lower(): value for name, value in spec.items()}
    texts = [given[name.lower()] for name in columns]
    return tuple(None if text == NULL_NAME else text for text in texts)
