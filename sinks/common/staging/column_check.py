"""Checks the columns of the rows before the first row is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from twophase.errors import ConfigError
from twophase.sinks.common.partition_names import folder_name
from twophase.sinks.common.staging import formats, rows
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.hive_files import struct_names

_CORRUPT = "_corrupt_record"


def check_columns(schema: pa.Schema, kind: Format, partition_by: Sequence[str]) -> None:
    """Check that every column reads back unchanged, and that names differ in more than case.

    Raises:
        ConfigError: a column cannot; the message names it.
    """
    problems = [f"column {name!r} appears twice" for name in duplicates(schema.names)]
    problems += [
        f"column {field.name!r}: the field {name!r} appears twice"
        for field in schema
        for name in _duplicate_fields(field.type)
    ]
    if kind in (Format.JSON, Format.CSV) and _CORRUPT in schema.names:
        problems.append(f"column {_CORRUPT!r}: Spark's reader fills a column of this name itself")
    if kind is Format.ORC:
        problems += _backquoted([field for field in schema if field.name not in partition_by])
    absent = [name for name in partition_by if name not in schema.names]
    problems += [f"partition column {name!r} is not in the rows" for name in absent]
    problems += [
        f"partition column {name!r} begins with {name[0]!r}: readers would skip its folders"
        for name in partition_by
        if name[:1] in ("_", ".")
    ]
    for field in schema:
        in_name = field.name in partition_by
        reason = rows.refusal(field.type) if in_name else formats.refusal(kind, field.type)
        problems += [f"column {field.name!r}: {reason}"] if reason else []
    if set(schema.names) <= {*partition_by}:
        problems.append("there are only partition columns, so files would be empty")
    if problems:
        raise ConfigError(
            f"The rows cannot be written as {kind.value}: {'; '.join(problems)}.",
            remedy="change the rows, the sink's options or the table.",
        )
    for name in partition_by:
        folder_name(name, None)


def _backquoted(columns: Sequence[pa.Field]) -> Iterator[str]:
    for column in columns:
        for name in (column.name, *struct_names(column.type)):
            if "`" in name:
                yield f"column {column.name!r}: Spark does not read ORC whose names have '`'"


def _duplicate_fields(kind: pa.DataType) -> Iterator[str]:
    fields = [kind.field(number) for number in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        yield from duplicates([field.name for field in fields])
    for field in fields:
        yield from _duplicate_fields(field.type)


def duplicates(names: Sequence[str]) -> list[str]:
    """Return the names that several have, without regard to case, in small letters."""
    lower = [name.lower() for name in names]
    return sorted({name for name in lower if lower.count(name) > 1})
