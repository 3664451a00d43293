"""The only use of pyiceberg's private names, but for those of its clients of REST catalogs and Hive
metastores, which `rest_client` and `hive_catalog` extend.

`Transaction.commit_transaction` retries: it makes a new snapshot and appends again, also if the
reply of the first commit was lost (apache/iceberg-python #3320). So the parts of a commit are made
here, and `Catalog.commit_table` is called by the sink, which looks for its proof before each try.
Private are `_SnapshotProducer` with `_commit`, which makes the parts of a snapshot, and
`_clean_all_uncommitted`; `UpdateSchema._commit`, for the parts of a new schema;
`_inherit_from_manifest`, for a reader that does not leave out which file a delete file is of;
`Catalog._delete_old_metadata`, which pyiceberg's own commits end with; and
`_parquet_writer_kwargs`, for pyarrow's options that no property of a table sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import ParquetFormatWriter, parquet_path_to_id_mapping
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetSnapshotRefUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.types import NestedField
from pyiceberg.utils.properties import property_as_bool

from twophase.sinks.iceberg.delete_files import DeleteFile

_WITH_REFERENCES: Literal[3] = 3
"""The version of manifests with all fields; writers of version 2 leave out some, or none."""


@dataclass(frozen=True)
class NewSnapshot:
    """A snapshot, its manifests written and no catalog told.

    Attributes:
        snapshot: its id.
        sequence: its sequence number.
        updates: make it the newest of a branch, which is kept as long as before.
        requirements: the branch is what it was.
        discard: deletes what was written for it.
    """

    snapshot: int
    sequence: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    discard: Callable[[], None]


def parquet_writer(
    file: OutputFile, schema: Schema, properties: Mapping[str, str], bounded: list[str]
) -> ParquetFormatWriter:
    """Return a writer of a data file.

    Args:
        file: to write to.
        schema: of the file.
        properties: of the table.
        bounded: the paths of the columns that get statistics.
    """
    unbounded = [
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{schema.find_column_name(number)}"
        for path, number in parquet_path_to_id_mapping(schema).items()
        if path not in bounded
    ]
    # pyiceberg would warn of statistics that it looks for
    writer = ParquetFormatWriter(file, schema, {**properties, **dict.fromkeys(unbounded, "none")})
    writer._parquet_writer_kwargs["write_statistics"] = bounded
    return writer


def append(
    table: Table, files: Sequence[DataFile], spec: int, summary: Mapping[str, str], branch: str
) -> NewSnapshot:
    """Write the manifests of a snapshot that appends files.

    Args:
        table: as it was loaded.
        files: the data files.
        spec: the id of their partition spec, which need not be the table's default any more.
        summary: entries of the snapshot's summary.
        branch: that the snapshot is for.
    """
    before, table.metadata = (
        table.metadata,
        table.metadata.model_copy(update={"default_spec_id": spec}),
    )
    try:
        snapshot = table.transaction().update_snapshot(dict(summary), branch)
        merges = property_as_bool(
            table.metadata.properties,
            TableProperties.MANIFEST_MERGE_ENABLED,
            TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
        )
        producer = snapshot.merge_append() if merges else snapshot.fast_append()
        for file in files:
            producer.append_data_file(file)
        return _written(table, producer)
    finally:
        table.metadata = before


def remove(
    table: Table, files: Sequence[DataFile], summary: Mapping[str, str], branch: str
) -> NewSnapshot:
    """Write the manifests of a snapshot without some of the files.

    Args:
        table: as it was loaded.
        files: data files of the branch's newest snapshot, as the manifests have them.
        summary: entries of the snapshot's summary.
        branch: that the snapshot is for.
    """
    snapshot = table.transaction().update_snapshot(dict(summary), branch)
    producer = snapshot.overwrite()
    producer.delete_by_predicate(AlwaysTrue())  # it looks into all manifests, and trusts no bounds
    for file in files:
        producer.delete_data_file(file)
    return _written(table, producer)


def delete_files(manifest: ManifestFile, files: FileIO) -> list[DeleteFile]:
    """Return the live entries of a manifest of delete files.

    Args:
        manifest: the manifest.
        files: reads it.
    """
    names = [field.name for field in DATA_FILE_TYPE[_WITH_REFERENCES].fields]
    referenced = names.index("referenced_data_file")
    with AvroFile[ManifestEntry](
        files.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[_WITH_REFERENCES],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        entries = [_inherit_from_manifest(entry, manifest) for entry in reader]
    return [
        DeleteFile(entry, entry.data_file[referenced])
        for entry in entries
        if entry.status != ManifestEntryStatus.DELETED
    ]


def delete_old_metadata(catalog: Catalog, table: Table, now: TableMetadata) -> None:
    """Delete metadata files that the newest one no longer lists, if the table's properties say so.

    Args:
        catalog: that has taken the commit, which holds whatever becomes of these files.
        table: as it was loaded for the commit.
        now: its metadata since the commit.
    """
    with suppress(OSError, ValueError):
        catalog._delete_old_metadata(table.io, table.metadata, now)


def new_columns(
    table: Table, columns: Sequence[NestedField]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return what adds optional columns to a table, with ids of its own, and to its name mapping.

    Args:
        table: as it was loaded.
        columns: their names and types.
    """
    update = table.transaction().update_schema()
    for column in columns:
        update.add_column((column.name,), column.field_type)
    return update._commit()


def _written(table: Table, producer: _SnapshotProducer[Any]) -> NewSnapshot:
    sequence = table.metadata.next_sequence_number()
    try:
        updates, requirements = producer._commit()
    except BaseException:
        producer._clean_all_uncommitted()
        raise
    kept = tuple(_as_long_as_before(update, table) for update in updates)
    return NewSnapshot(
        producer.snapshot_id, sequence, kept, requirements, producer._clean_all_uncommitted
    )


def _as_long_as_before(update: TableUpdate, table: Table) -> TableUpdate:
    """Return an update that leaves a branch its retention, which pyiceberg would remove."""
    if not isinstance(update, SetSnapshotRefUpdate):
        return update
    refs = table.metadata.refs
    ref = refs.get(update.ref_name)
    if ref is None:
        return update
    names = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")
    return update.model_copy(update={name: getattr(ref, name) for name in names})
