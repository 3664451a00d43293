"""Compares a table with what files were written for, and refuses tables that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from twophase.errors import ConfigError
from twophase.sinks.paimon.columns import Column, fits, name_of, text_of
from twophase.sinks.paimon.options import PaimonOptions
from twophase.sinks.paimon.private_api import Schema

PARTITIONS = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "STRING", "DATE")
"""The types of partition columns."""

_ALLOWED: Mapping[str, str] = {
    "bucket": "-1",
    "file.format": "parquet",
    "manifest.format": "avro",
    "branch": "main",
    "type": "table",
    "row-tracking.enabled": "false",
    "data-evolution.enabled": "false",
    "metadata.iceberg.storage": "disabled",
    "changelog-producer": "none",
    "query-auth.enabled": "false",
    "index-file-in-data-file-dir": "false",
}
"""The only value of each option that can be written, which is its default."""
_CODECS = ("zstd", "snappy", "lz4", "gzip", "brotli", "none", "uncompressed")
"""The values of `file.compression` that pyarrow can write, in any case."""
_ELSEWHERE = (
    "data-file.external-paths",
    "data-file.path-directory",
    "variant.shreddingSchema",
    "blob-field",
    "vector-field",
)


def check_table(schema: Schema, options: PaimonOptions) -> None:
    """Check that a table can be written.

    Args:
        schema: its newest.
        options: of the sink.

    Raises:
        ConfigError: it cannot; the message names all reasons.
    """
    problems, partition_by = [*_refusals(schema)], options.partition_by
    if partition_by and [*partition_by] != schema.partition_keys:
        shown = ", ".join(schema.partition_keys) or "nothing"
        problems.append(f"it is partitioned by {shown}, not {', '.join(partition_by)}")
    if problems:
        raise ConfigError(
            f"The table {options.table} cannot be written: {'; '.join(problems)}.",
            remedy="change the table, or name another.",
        )


def _refusals(schema: Schema) -> Iterator[str]:
    if schema.primary_keys:
        yield (
            f"it has a primary key ({', '.join(schema.primary_keys)}), and only append-only tables "
            "are supported: the sequence numbers of two writers can collide"
        )
    for key, allowed in _ALLOWED.items():
        if (found := schema.options.get(key, allowed)).lower() != allowed:
            yield f"{key} is {found}, not {allowed}"
    codec = schema.options.get("file.compression", "zstd")
    if codec.lower() not in _CODECS:
        yield f"file.compression is {codec}, not one of {', '.join(_CODECS)}"
    yield from (f"{key} is set" for key in _ELSEWHERE if key in schema.options)
    kinds = {column.name: name_of(column.kind) for column in schema.columns}
    yield from _refused_partitions({key: kinds[key] for key in schema.partition_keys})


def check_partitions(kinds: Mapping[str, str | None]) -> None:
    """Check that a new table can be partitioned by columns, by their types.

    Raises:
        ConfigError: it cannot.
    """
    if problems := [*_refused_partitions(kinds)]:
        raise ConfigError(
            f"The table cannot be created: {'; '.join(problems)}.",
            remedy="choose other columns in partition_by.",
        )


def _refused_partitions(kinds: Mapping[str, str | None]) -> Iterator[str]:
    for name, kind in kinds.items():
        if kind not in PARTITIONS:
            yield (
                f"partition column {name!r} is {kind or 'nested'}, and only "
                f"{', '.join(PARTITIONS)} can be"
            )


def differences(fields: Mapping[str, str], columns: Sequence[Column]) -> list[str]:
    """Return why files no longer fit a table; empty if they do.

    Columns may have been added, renamed or widened meanwhile: Paimon finds them by their ids.

    Args:
        fields: the type of each column that the files were written for, by its id.
        columns: the table's, now.
    """
    now = {str(column.number): column for column in columns}
    problems = [f"the column of id {number} was dropped" for number in fields if number not in now]
    problems += [
        f"column {now[number].name!r} was {was} and is {text_of(now[number].kind)}"
        for number, was in fields.items()
        if number in now and not _holds(text_of(now[number].kind), was)
    ]
    problems += [
        f"column {now[number].name!r} was added and is required"
        for number in now.keys() - fields.keys()
        if now[number].required
    ]
    return problems


def _holds(now: str, was: str) -> bool:
    """Return whether a column holds what was written for what it was."""
    if now == was:
        return True
    return not now.endswith(" required") and fits(was.removesuffix(" required"), now)


def fields_of(columns: Sequence[Column]) -> dict[str, str]:
    """Return the type of each column, and whether it is required, by its id."""
    return {str(column.number): text_of(column.kind) for column in columns}
