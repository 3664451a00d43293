"""Compares a table with what files were written for, and refuses tables that cannot be written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from twophase.errors import ConfigError
from twophase.sinks.iceberg import partitions, sorting
from twophase.sinks.iceberg.columns import name_problems
from twophase.sinks.iceberg.records import Manifest
from twophase.sinks.iceberg.table import fields_of

VERSIONS = (1, 2)
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")
_WIDER = {("int", "long"), ("float", "double")}
_ELSEWHERE = (
    "write.data.path",
    "write.metadata.path",
    "write.folder-storage.path",
    "write.object-storage.path",
    "write.py-location-provider.impl",
    "write.location-provider.impl",
)


def check_table(table: Table, partition_by: tuple[str, ...]) -> None:
    """Check that a table can be written.

    Raises:
        ConfigError: it cannot; the message names all reasons.
    """
    metadata = table.metadata
    problems = [*_refusals(metadata)]
    if partition_by:
        wanted = partitions.new_spec(partition_by, metadata.schema())
        if _made_of(wanted) != _made_of(metadata.spec()):
            problems.append(
                f"it is partitioned by {_shown(metadata)}, not {', '.join(partition_by)}"
            )
    if problems:
        raise ConfigError(
            f"The table {'.'.join(table.name())} cannot be written: {'; '.join(problems)}.",
            remedy="change the table, or name another.",
        )


def _refusals(metadata: TableMetadata) -> Iterator[str]:
    properties = metadata.properties
    if metadata.format_version not in VERSIONS:
        yield f"its format version is {metadata.format_version}, and 1 and 2 are supported"
    if properties.get("write.format.default", "parquet") != "parquet":
        yield f"write.format.default is {properties['write.format.default']}, not parquet"
    if properties.get("write.object-storage.enabled", "false").lower() == "true":
        yield "write.object-storage.enabled is true"
    yield from (f"{key} is set" for key in _ELSEWHERE if key in properties)
    yield from name_problems(metadata.schema().fields)
    yield from partitions.refusals(metadata.spec(), metadata.schema())
    yield from sorting.refusals(metadata.sort_order(), metadata.schema())


def _made_of(spec: PartitionSpec) -> list[tuple[int, str]]:
    """Return what a spec is made of; engines name the fields differently."""
    return [(field.source_id, str(field.transform)) for field in spec.fields]


def _shown(metadata: TableMetadata) -> str:
    fields = metadata.spec().fields
    return ", ".join(f"{field.transform}({field.name})" for field in fields) or "nothing"


def differences(manifest: Manifest, metadata: TableMetadata) -> list[str]:
    """Return why files no longer fit a table; empty if they do.

    Columns may have been added, renamed or widened meanwhile: Iceberg finds them by their ids.
    """
    now = fields_of(metadata)
    names = {str(field.field_id): field.name for field in metadata.schema().fields}
    problems = [
        f"the column of id {number} was dropped" for number in manifest.fields if number not in now
    ]
    problems += [
        f"column {names[number]!r} was {was} and is {now[number]}"
        for number, was in manifest.fields.items()
        if number in now and not _holds(now[number], was)
    ]
    problems += [
        f"column {names[number]!r} was added and is required"
        for number in now.keys() - manifest.fields.keys()
        if now[number].endswith(" required")
    ]
    if manifest.spec not in metadata.specs():
        problems.append(f"partition spec {manifest.spec} was removed")
    if metadata.format_version not in VERSIONS:
        problems.append(f"its format version is {metadata.format_version} now")
    return problems


def _holds(now: str, was: str) -> bool:
    """Return whether a column holds what was written for what it was."""
    if now == was:
        return True
    if now.endswith(" required"):
        return False
    was = was.removesuffix(" required")
    given, column = _DECIMAL.fullmatch(was), _DECIMAL.fullmatch(now)
    if given and column:
        return given[2] == column[2] and int(given[1]) <= int(column[1])
    return now == was or (was, now) in _WIDER
