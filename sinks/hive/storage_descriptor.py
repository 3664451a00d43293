"""Validates what the metastore says, which alone readers follow, against the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from twophase.errors import ConfigError, StopJobError
from twophase.internals.redaction import shown
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.layout_check import same_type
from twophase.sinks.common.staging.location import local_path

_NAMED = 3
_SERDES = {"ParquetHiveSerDe": Format.PARQUET, "OrcSerde": Format.ORC}


@dataclass(frozen=True)
class StorageDescriptor:
    """The location and format of files.

    Attributes:
        location: the folder; empty if there is none.
        format: of the files; None if the sink does not support it.
    """

    location: str
    format: Format | None


def check_storage(
    table: str, known: Mapping[str, StorageDescriptor], expected: Mapping[str, StorageDescriptor]
) -> None:
    """Check that readers look where the files are.

    Args:
        table: the name of the table.
        known: the metastore's entries: the table's under an empty name, a partition's under its
            path below the table.
        expected: where the files of each of them are.

    Raises:
        StopJobError: readers would not find them.
    """
    if problem := storage_problem(known, expected):
        raise StopJobError(
            f"Table {table} has changed in the metastore: {problem}. "
            "Readers would not see the new files. Decided checkpoints wait; nothing is lost.",
            remedy="move the files in the other folder to where the new files are, reset location "
            "(ALTER TABLE ... SET LOCATION) and format, then start the job again.",
        )


def check_columns(table: str, now: pa.Schema, then: pa.Schema) -> None:
    """Check that readers find the columns that files have.

    Args:
        table: the name of the table.
        now: its columns.
        then: those that it had when the files were planned.

    Raises:
        StopJobError: one is gone, or has another type.
    """
    types = {field.name.lower(): field.type for field in now}
    problems = [
        f"column {field.name!r} "
        + (f"is {found} and was {field.type}" if found is not None else "is gone")
        for field in then
        for found in [types.get(field.name.lower())]
        if found is None or not same_type(found, field.type)
    ]
    if problems:
        raise StopJobError(
            f"Table {table} has changed in the metastore: {'; '.join(problems)}. Readers would not "
            "see these values of the new files. Decided checkpoints wait; nothing is lost.",
            remedy="change it back (ALTER TABLE ... CHANGE COLUMN), then start the job again; "
            "change table and rows while no checkpoint waits.",
        )


def storage_problem(
    known: Mapping[str, StorageDescriptor], expected: Mapping[str, StorageDescriptor]
) -> str:
    """Return which entries of the metastore are not where their files are; empty if none is.

    Args:
        known: see `check_storage`.
        expected: likewise.
    """
    problems = [
        text for name, one in known.items() if (text := _problem(name, one, expected[name]))
    ]
    more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
    return f"{'; '.join(problems[:_NAMED])}{more}"


def _problem(name: str, known: StorageDescriptor, expected: StorageDescriptor) -> str:
    what = f"partition {shown(name)}" if name else "the table"
    if not _is_at(known.location, Path(expected.location)):
        there, here = (shown(one.location) if name else one.location for one in (known, expected))
        return (
            f"{what} is at {there if known.location else 'no folder'}, its new files are in {here}"
        )
    if known.format is not expected.format:
        has = known.format.value if known.format else "another format"
        return (
            f"{what} is {has}, its new files are "
            f"{expected.format.value if expected.format else 'not'}"
        )
    return ""


def _is_at(location: str, folder: Path) -> bool:
    """Return whether a location is a given folder, with or without a scheme or a link."""
    try:
        path = local_path(location, "location")
    except ConfigError:
        return False
    return path == folder or (path.exists() and folder.exists() and path.samefile(folder))


def table_format(found: Any) -> Format | None:
    """Return the format of a table's files; None if the sink does not support it.

    Args:
        found: the table, as Spark's catalog describes it.
    """
    provider = found.provider().get() if found.provider().isDefined() else ""
    serde = found.storage().serde().get() if found.storage().serde().isDefined() else ""
    if is_of_hive(found):
        return serde_format(serde)
    return Format(provider) if provider in (Format.PARQUET, Format.ORC) else None


def is_of_hive(found: Any) -> bool:
    """Return whether a table is one of Hive's own, such as `STORED AS PARQUET` makes.

    Args:
        found: as in `table_format`.
    """
    return bool(found.provider().isDefined() and found.provider().get() == "hive")


def serde_format(serde: str) -> Format | None:
    """Return the format that a serde of Hive reads and writes; None as in `table_format`."""
    return _SERDES.get(serde.rpartition(".")[2])
