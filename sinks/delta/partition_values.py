"""Refuses partition values that Delta would change or could not write, before they are written.

Delta stores a partition value as text: in its log, and in the name of a folder unless the table's
folders have random names. An empty text reads back as null, and so does Hive's name for null; bytes
that are not UTF-8 read back as others. A folder's name cannot hold NUL, and its length is limited.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from twophase.sinks.common.partition_names import MAX_NAME_BYTES, NULL_NAME, escape
from twophase.sinks.delta.alter import quoted

REFUSED = "TWOPHASE_PARTITION_VALUE"
"""A marker in the text of the error that Spark raises for a row: before the problem,
and before the value.
"""

_ESCAPED = "".join(
    character for character in map(chr, range(1, 128)) if escape(character) != character
)
_SHOWN = 40


def refusing(
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
    problem = F.when(text.isin("", NULL_NAME), "would read back as null").when(
        ~F.is_valid_utf8(text), "is not UTF-8, so it would read back as another value"
    )
    if in_folder_names:
        problem = problem.when(text.contains("\0"), "holds a NUL, which no folder's name can").when(
            _name_bytes(name, text) > MAX_NAME_BYTES,
            f"makes a folder's name of more than {MAX_NAME_BYTES} bytes",
        )
    shown = F.substring(text, 1, _SHOWN)
    head, tail = F.lit(f"{REFUSED} partition column {name!r}: "), F.lit(f" {REFUSED} ")
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
