"""Checks the first file of a folder, so that no rows are mixed with files of another layout."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet

from twophase.errors import ConfigError, PreflightError
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import escape
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.times import as_moments, inside
from twophase.sinks.common.staging.visible_files import is_hidden


def check_layout(root: Path, schema: pa.Schema, kind: Format, partition_by: Sequence[str]) -> None:
    """Validate the rows against the first file that readers see, if there is one.

    JSON lines have no schema: only format and partition columns are compared.

    Raises:
        ConfigError: it has another format, other partition columns, or other columns.
        PreflightError: it cannot be read.
    """
    path = _first_file(root)
    if path is None:
        return
    problems = _partition_problems(path.relative_to(root), partition_by)
    if not path.name.endswith(kind.suffix):
        problems.append(f"is not a {kind.value} file")
    else:
        expected = pa.schema([field for field in schema if field.name not in partition_by])
        problems += _differences(_read(path, kind), expected, kind)
    if problems:
        raise ConfigError(
            f"The folder {root} has files that this sink would not write: "
            f"{shown(str(path.relative_to(root)))} {'; '.join(problems)}.",
            remedy="write to another folder, or change the rows, format or partition_by; if this "
            "file is not the table's, move it away: readers take it for a part of the table too.",
        )


def _first_file(folder: Path) -> Path | None:
    """Return the first file that readers see in a folder; they follow links."""
    try:
        for entry in sorted(folder.iterdir()):
            if is_hidden(entry.name):
                continue
            found = _first_file(entry) if entry.is_dir() else entry
            if found is not None:
                return found
    except OSError as error:
        raise PreflightError(
            f"{shown(str(folder))} cannot be listed: {error.strerror}.",
            remedy="give the driver's account the right to read it, or move it out of the table: "
            "readers list it too.",
        ) from error
    return None


def _partition_problems(path: Path, partition_by: Sequence[str]) -> list[str]:
    found = [name.partition("=")[0] for name in path.parts[:-1]]
    expected = [escape(name) for name in partition_by]
    return [] if found == expected else [f"is partitioned by {found}, not by {expected}"]


def _read(path: Path, kind: Format) -> pa.Schema | list[str] | None:
    """Return the columns of a file: a schema, or only names, or nothing, as the format has it."""
    try:
        match kind:
            case Format.PARQUET:
                return _parquet_schema(path)
            case Format.ORC:
                return pa.orc.ORCFile(path).schema
            case Format.CSV:
                with path.open(newline="") as file:
                    return next(csv.reader(file), [])
            case Format.JSON:
                return None
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors are of these kinds
        raise PreflightError(
            f"{shown(str(path))} cannot be read as {kind.value}: {shown(str(error))}.",
            remedy="remove or repair it.",
        ) from error


def _parquet_schema(path: Path) -> pa.Schema:
    """Return the columns of a parquet file. INT96 is a moment, of which pyarrow has no zone."""
    with pa.parquet.ParquetFile(path) as file:
        found, leaves = file.schema_arrow, file.schema
    physical = (leaves.column(number).physical_type for number in range(len(leaves)))

    def meant(kind: pa.DataType) -> pa.DataType:
        """Return the type of a leaf, or of those inside it, which come in the same order."""
        if pa.types.is_nested(kind):
            return inside(kind, meant)
        return as_moments(kind) if next(physical, "") == "INT96" else kind

    return pa.schema(field.with_type(meant(field.type)) for field in found)


def _differences(
    found: pa.Schema | list[str] | None, expected: pa.Schema, kind: Format
) -> list[str]:
    if found is None:
        return []
    names = found if isinstance(found, list) else found.names
    if sorted(names) != sorted(expected.names):
        return [f"has the columns {sorted(names)}, the rows have {sorted(expected.names)}"]
    if isinstance(found, list):
        if found == expected.names:
            return []
        order = f"has the columns {found} in this order, the rows have {expected.names}"
        return [f"{order}: readers of CSV go by it"]
    return [
        f"has column {field.name!r} as {found.field(field.name).type}, the rows have {field.type}"
        for field in expected
        if not same_type(found.field(field.name).type, field.type, kind)
    ]


def same_type(found: pa.DataType, expected: pa.DataType, kind: Format | None = None) -> bool:
    """Return whether readers see the same type, whatever its encoding, unit and element names.

    Args:
        found: of a file or a table.
        expected: of the rows.
        kind: the format of the file, None for a table. Names of fields differ in case too in
            files, and moments from times without a zone in parquet; pyarrow does not tell these
            apart in ORC.
    """
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(expected):
        return kind is not Format.PARQUET or (found.tz is None) == (expected.tz is None)
    if pa.types.is_nested(found) and pa.types.is_nested(expected):
        ours, theirs = _inner(expected), _inner(found)
        return len(ours) == len(theirs) and all(
            (name == other if kind else name.lower() == other.lower()) and same_type(one, two, kind)
            for (name, one), (other, two) in zip(theirs, ours, strict=True)
        )
    return bool(_plain(found) == _plain(expected))


def _inner(kind: pa.DataType) -> Sequence[tuple[str, pa.DataType]]:
    """Return the types inside a type, with their names in a struct."""
    if pa.types.is_map(kind):
        return [("", kind.key_type), ("", kind.item_type)]
    named = pa.types.is_struct(kind)
    fields = [kind.field(number) for number in range(kind.num_fields)]
    return [(field.name if named else "", field.type) for field in fields]


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
