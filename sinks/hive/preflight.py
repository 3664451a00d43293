"""Finds or creates the table, and checks that rows fit it, before any is written.

Names of columns are compared without regard to case, as in Hive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from twophase.errors import ConfigError
from twophase.sinks.common.partition_names import RefusedValueError, folder_name
from twophase.sinks.common.staging.column_check import check_columns, duplicates
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.hive_files import has_local_times, struct_names
from twophase.sinks.common.staging.layout_check import same_type
from twophase.sinks.common.staging.location import check_inside, local_path
from twophase.sinks.common.staging.partition_time import PartitionTime
from twophase.sinks.common.staging.preflight import check_owned
from twophase.sinks.common.staging.rows import refusal
from twophase.sinks.common.staging.table import refusal_by_metastore
from twophase.sinks.hive.catalog import Catalog, HiveTable
from twophase.sinks.hive.options import HiveOptions, Trigger

_LONGEST_KEY = 128
"""Of the names of partition columns, in the standard schema of the metastore's database."""


@dataclass(frozen=True)
class Destination:
    """Where rows go in a table.

    Attributes:
        path: the table's folder.
        columns: the table's name for each column of the rows; empty if none will follow.
        time: gives the time of its partitions; None if they have none.
    """

    path: Path
    columns: Mapping[str, str]
    time: PartitionTime | None


def find_table(catalog: Catalog, options: HiveOptions, rows: pa.Schema | None) -> HiveTable:
    """Return the table; create it if it does not exist, the options say so, and rows will follow.

    Raises:
        ConfigError: it does not exist, or the rows or options do not allow to create it.
    """
    if (found := catalog.table(options.table)) is not None:
        if rows is not None:
            check_times(catalog, found.format, rows)
        return found
    if rows is None or not options.create:
        raise ConfigError(
            f"There is no table {options.table!r}.", remedy="create it, or set `create=true`."
        )
    return _create(catalog, options, rows)


def _create(catalog: Catalog, options: HiveOptions, rows: pa.Schema) -> HiveTable:
    """Create the table after all checks: a refusal leaves no table behind."""
    check_columns(rows, options.format, options.partition_by)
    if long := [name for name in options.partition_by if len(name) > _LONGEST_KEY]:
        raise ConfigError(
            f"The partition column {long[0]!r} has {len(long[0])} letters; a metastore keeps "
            f"{_LONGEST_KEY}.",
            remedy="give it a shorter name, in the rows and in partition_by.",
        )
    check_times(catalog, options.format, rows)
    planned = catalog.plan(options.table, rows, options.format, options.partition_by)
    check_owned(check_table(planned, options, rows).path)
    catalog.create(planned)
    found = catalog.table(options.table)
    if found is None:
        raise ConfigError(
            f"Table {options.table!r} was created and then disappeared.",
            remedy="find out who dropped it, then start the job again: it creates it.",
        )
    return found


def check_table(table: HiveTable, options: HiveOptions, rows: pa.Schema | None) -> Destination:
    """Validate options and rows against a table, existing or planned.

    Raises:
        ConfigError: they do not fit.
    """
    if options.create and table.partition_columns != options.partition_by:
        raise ConfigError(
            f"Table {table.name} is partitioned by {list(table.partition_columns)}, not by "
            f"{list(options.partition_by)}.",
            remedy="correct partition_by, or write to another table.",
        )
    path = local_path(table.location, f"the location of table {table.name}")
    if options.root is not None:
        check_inside(path, local_path(options.root, "root"))
    time = _partition_time(table, options)
    if rows is None:
        return Destination(path, {}, time)
    columns = map_columns(rows, table, options.partition)
    renamed = pa.schema([pa.field(columns[field.name], field.type) for field in rows])
    dynamic = [name for name in table.partition_columns if name not in options.partition]
    check_columns(renamed, table.format, dynamic)
    if table.serde and table.format is Format.ORC and (hidden := _capital_fields(renamed)):
        raise ConfigError(
            f"Hive would read null from ORC: {'; '.join(hidden)}.",
            remedy="write the fields of structs without capital letters, in the rows and in the "
            "table, or make it a parquet table.",
        )
    if time is not None and (problems := time.problems(renamed)):
        raise ConfigError(
            f"Cannot derive the time of a partition: {'; '.join(problems)}.",
            remedy="correct the sink's options.",
        )
    return Destination(path, columns, time)


def check_times(catalog: Catalog, kind: Format, rows: pa.Schema) -> None:
    """Check that the JVM reads ORC's timestamps as they are written.

    Raises:
        ConfigError: it reads them in another zone.
    """
    timed = [field.name for field in rows if pa.types.is_timestamp(field.type)]
    if kind is Format.ORC and timed and (zone := catalog.zone()):
        raise ConfigError(
            f"Columns {timed} are timestamps. Hive takes those of ORC files for times of its own "
            f"zone; they are written in UTC, and the zone of this JVM is {zone}.",
            remedy="add -Duser.timezone=UTC to spark.driver.extraJavaOptions and "
            "spark.executor.extraJavaOptions, and to all readers; or use a parquet table.",
        )


def _partition_time(table: HiveTable, options: HiveOptions) -> PartitionTime | None:
    if options.partition_commit_trigger is Trigger.CHECKPOINT:
        return None
    return PartitionTime(
        table.partition_columns,
        options.partition_time or "",
        options.event_time or "",
        delay_us=round(options.partition_commit_delay * 10**6),
        zone=options.partition_commit_watermark_time_zone,
        max_future_us=round(options.event_time_max_future * 10**6),
    )


def map_columns(rows: pa.Schema, table: HiveTable, static: Mapping[str, str]) -> dict[str, str]:
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
    problems = [f"column {name!r} appears twice" for name in duplicates(rows.names)]
    problems += _static_problems(table, static)
    found: dict[str, str] = {}
    for column in [*table.columns, *_dynamic(table, static)]:
        field = given.pop(column.name.lower(), None)
        if field is not None and _same_type(field.type, column.type):
            found[field.name] = column.name
        else:
            is_key = column.name in table.partition_columns
            problems.append((is_key and _refusal(column)) or _problem(column, field))
    problems += [f"column {field.name!r} is not in the table" for field in given.values()]
    if problems:
        raise ConfigError(
            f"The rows do not fit table {table.name}: {'; '.join(problems)}.",
            remedy="change the rows, for example with select and cast, or the table.",
        )
    return found


def _same_type(rows: pa.DataType, table: pa.DataType) -> bool:
    return same_type(rows, table) and has_local_times(rows) == has_local_times(table)


def _dynamic(table: HiveTable, static: Mapping[str, str]) -> list[pa.Field]:
    partitions = zip(table.partition_columns, table.partition_types, strict=True)
    return [pa.field(name, kind) for name, kind in partitions if name not in static]


def _problem(column: pa.Field, field: pa.Field | None) -> str:
    if field is None:
        return f"column {column.name!r} is not in the rows"
    return f"column {column.name!r}: the rows have {field.type}, the table has {column.type}"


def _refusal(key: pa.Field) -> str:
    """Return why no rows fit a partition column; empty if some do."""
    reason = refusal(key.type)
    return f"partition column {key.name!r} of the table: {reason}" if reason else ""


def _capital_fields(rows: pa.Schema) -> list[str]:
    return [
        f"column {field.name!r} has a struct with the field {name!r}"
        for field in rows
        for name in struct_names(field.type)
        if name != name.lower()
    ]


def _static_problems(table: HiveTable, static: Mapping[str, str]) -> list[str]:
    kinds = dict(zip(table.partition_columns, table.partition_types, strict=True))
    problems = []
    for name, value in static.items():
        if name not in kinds:
            problems.append(f"static partition column {name!r} is not a partition column")
            continue
        try:
            folder_name(name, value)
            if pa.scalar(value).cast(kinds[name]).cast(pa.string()).as_py() != value:
                problems.append(
                    f"static partition {name} = {value!r} is not the text of a {kinds[name]}"
                )
        except (RefusedValueError, pa.ArrowInvalid) as error:
            problems.append(f"static partition {name} = {value!r}: {error}")
        if reason := refusal_by_metastore(value):
            problems.append(f"static partition {name} = {value!r} {reason}")
    return problems
