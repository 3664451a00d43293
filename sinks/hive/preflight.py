"""Checks that rows fit a table, without regard to case, as in Hive, before any is written."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from twophase.errors import ConfigError
from twophase.sinks.common.partition_names import RefusedValueError, folder_name
from twophase.sinks.common.staging.layout_check import same_type
from twophase.sinks.hive.catalog import HiveTable


def fit(rows: pa.Schema, table: HiveTable, static: Mapping[str, str]) -> dict[str, str]:
    """Find each column of a table in the rows.

    Args:
        rows: their columns.
        table: the table.
        static: the value of each static partition column.

    Returns:
        The table's name for each column of the rows, in the table's order, partition columns last.

    Raises:
        ConfigError: they do not fit; the message names every column that does not.
    """
    given = {field.name.lower(): field for field in rows}
    problems = _static_problems(table, static)
    found: dict[str, str] = {}
    for column in [*table.columns, *_dynamic(table, static)]:
        field = given.pop(column.name.lower(), None)
        if field is not None and same_type(field.type, column.type):
            found[field.name] = column.name
        else:
            problems.append(_problem(column, field))
    problems += [f"column {field.name!r} is not in the table" for field in given.values()]
    if problems:
        raise ConfigError(
            f"The rows do not fit table {table.name}: {'; '.join(problems)}.",
            remedy="change the rows, for example with select and cast, or the table.",
        )
    return found


def _dynamic(table: HiveTable, static: Mapping[str, str]) -> list[pa.Field]:
    partitions = zip(table.partition_columns, table.partition_types, strict=True)
    return [pa.field(name, kind) for name, kind in partitions if name not in static]


def _problem(column: pa.Field, field: pa.Field | None) -> str:
    if field is None:
        return f"column {column.name!r} is not in the rows"
    return f"column {column.name!r}: the rows have {field.type}, the table has {column.type}"


def _static_problems(table: HiveTable, static: Mapping[str, str]) -> list[str]:
    kinds = dict(zip(table.partition_columns, table.partition_types, strict=True))
    problems = []
    for name, value in static.items():
        if name not in kinds:
            problems.append(f"static partition column {name!r} is no partition column")
            continue
        try:
            folder_name(name, value)
            if pa.scalar(value).cast(kinds[name]).cast(pa.string()).as_py() != value:
                problems.append(
                    f"static partition {name} = {value!r} is not how a {kinds[name]} is written"
                )
        except (RefusedValueError, pa.ArrowInvalid) as error:
            problems.append(f"static partition {name} = {value!r}: {error}")
    return problems
