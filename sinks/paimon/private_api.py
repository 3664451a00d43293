"""What the sink needs of pypaimon beyond its public interface: a commit of exactly one try.

pypaimon's own commit looks for the newest snapshot itself, and tries again when somebody else was
faster, whoever has decided or aborted what meanwhile. Here a commit makes the snapshot after the
one that the caller has looked at, or none. Its writer takes a path of its own and rolls; here a
file is written where the sink stages it. All of that is in this module, for the one minor version
of pypaimon that setup.cfg allows.

pypaimon's own file access leaves metadata in the page cache, and its rename looks whether a name is
free before it takes it: two processes can take the same one, and the second replaces the snapshot
of the first. Here files are synced before a snapshot names them, and none is replaced.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon.common.identifier import Identifier
from pypaimon.common.json_util import JSON
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.schema.schema import Schema as NewSchema
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema
from pypaimon.snapshot.snapshot import Snapshot
from pypaimon.snapshot.snapshot_commit import SnapshotCommit
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import (
    deserialize_commit_message,
    serialize_commit_message,
)
from pypaimon.write.file_store_commit import FileStoreCommit
from pypaimon.write.writer.append_only_data_writer import AppendOnlyDataWriter

from twophase.sinks.common.lake.rows import TableColumn
from twophase.sinks.common.lake.synced_stream import SyncedStream
from twophase.sinks.common.staging.disk import NewFile, rename_new, sync
from twophase.sinks.common.staging.parquet_statistics import with_bounds
from twophase.sinks.paimon.columns import Column

Values = tuple[Any, ...]
"""The value of each partition column."""

_BUCKET = 0
"""Of every file of a table without buckets."""
_BOUND_BYTES = 64
"""The longest text that is kept as a bound of a column."""
_SNAPSHOT = re.compile(r"snapshot-(\d{1,18})", re.ASCII)
_APPEND = "APPEND"


class ConflictError(Exception):
    """Somebody else was faster; nothing was committed."""


class SyncedFileIO(LocalFileIO):  # type: ignore[misc]  # pypaimon has no types here
    """Reads as pypaimon does, and syncs what it writes."""

    def new_output_stream(self, path: str) -> SyncedStream:
        """See `FileIO.new_output_stream`."""
        found: Path = self._to_file(path)
        make_folder(found.parent)
        return SyncedStream(found)

    def try_to_write_atomic(self, path: str, content: str) -> bool:
        """Write a new file, which is there whole and durably, or not at all.

        Returns:
            Whether it was written; False if the name is taken.

        Raises:
            OSError: whether it was written is unknown.
        """
        found: Path = self._to_file(path)
        make_folder(found.parent)
        temporary = found.with_name(f".{found.name}.{uuid.uuid4()}.tmp")
        try:
            with SyncedStream(temporary) as file:
                file.write(content.encode())
            rename_new(temporary, found)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        sync(found.parent)
        return True


def make_folder(path: Path) -> None:
    """Create a folder durably, but not the one above it: a table that was dropped stays so."""
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        sync(path.parent)


def first_schema(location: Path) -> bytes | None:
    """Return the first schema file of a table, which says when it was created; None if there is
    none.
    """
    try:
        return (location / "schema" / "schema-0").read_bytes()
    except FileNotFoundError:
        return None


class Schema:
    """The schema of a table.

    Args:
        native: as pypaimon has it.
    """

    def __init__(self, native: TableSchema) -> None:
        self.native = native
        self.partition_keys: list[str] = list(native.partition_keys)
        self.primary_keys: list[str] = list(native.primary_keys)
        self.options: Mapping[str, str] = native.options

    @cached_property
    def columns(self) -> Sequence[Column]:
        """The columns."""
        return [
            Column(field.id, field.name, field.type.to_dict(), field.default_value is not None)
            for field in self.native.fields
        ]

    @cached_property
    def file_columns(self) -> Sequence[TableColumn]:
        """The columns as files have them."""
        arrow = PyarrowFieldParser.from_paimon_schema(self.native.fields)
        return [
            TableColumn(column.name, form.type, column.required)
            for column, form in zip(self.columns, arrow, strict=True)
        ]

    def encode(self) -> str:
        """Return it as Paimon's schema files have it."""
        return str(JSON.to_json(self.native))

    @classmethod
    def decode(cls, text: str) -> Schema:
        """Return a schema that `encode` has made."""
        return cls(JSON.from_json(text, TableSchema))


class PaimonTable:
    """A table in a folder, with one version of its schema.

    Args:
        location: its folder.
        name: its name, for pypaimon.
        schema: its schema.
    """

    def __init__(self, location: Path, name: str, schema: Schema) -> None:
        self.location = location
        self.schema = schema
        self._io = SyncedFileIO()
        self.native = FileStoreTable(
            self._io, Identifier.from_string(name), str(location), schema.native
        )
        self._snapshots = location / "snapshot"
        self._first = first_schema(location)

    @property
    def columns(self) -> Sequence[Column]:
        """The table's columns."""
        return self.schema.columns

    def ids(self) -> list[int]:
        """Return the ids of all snapshots, in ascending order."""
        if not self._snapshots.exists():
            return []
        names = (path.name for path in self._snapshots.iterdir())
        return sorted(int(found[1]) for name in names if (found := _SNAPSHOT.fullmatch(name)))

    def snapshot(self, number: int) -> Snapshot | None:
        """Return a snapshot; None if there is none of that id."""
        return self.native.snapshot_manager().get_snapshot_by_id(number)

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot; None if there is none. No hint is believed."""
        while ids := self.ids():
            if (found := self.snapshot(ids[-1])) is not None:
                return found  # else somebody has rolled it back in between
        return None

    def names_in(self, snapshot: Snapshot) -> set[str]:
        """Return the names of all data files that a snapshot has."""
        manifests = ManifestListManager(self.native).read_all(snapshot)
        entries = ManifestFileManager(self.native).read_entries_parallel(manifests)
        return {entry.file.file_name for entry in entries}

    def divide(self, rows: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """Split rows by partition; the rows of each part are copied, if there are several.

        Args:
            rows: with the table's columns and types.
        """
        if not self._partition_fields:
            yield (), rows
            return
        extractor = self.native.create_row_key_extractor()
        for partition, _, indices in extractor.extract_partition_bucket_groups(rows):
            yield tuple(partition), rows if indices is None else rows.take(indices)

    def file_path(self, partition: Values, name: str) -> Path:
        """Return where readers look for a data file."""
        return Path(canonical_data_file_path(self.native, partition, _BUCKET, name))

    def write_file(
        self, path: Path, name: str, partition: Values, rows: pa.Table
    ) -> tuple[bytes, NewFile]:
        """Write rows of one partition to a file, synced.

        Args:
            path: where.
            name: its name in the table.
            partition: the values of the partition columns.
            rows: with the table's columns and types.

        Returns:
            The commit message that adds it, and the file, closed, with its size and SHA-256.
        """
        writer = _StagedDataWriter(self.native, partition, path)
        writer._write_data_to_file(rows)
        [meta] = writer.committed_files
        message = CommitMessage(
            partition=partition,
            bucket=_BUCKET,
            new_files=[replace(meta, file_name=name, file_path=None)],
        )
        return serialize_commit_message(message, self._partition_fields), writer.file

    def message(self, data: bytes) -> CommitMessage:
        """Return a commit message, the reverse of what `write_file` returns."""
        return deserialize_commit_message(data, self._partition_fields)

    def publish(
        self,
        latest: Snapshot | None,
        messages: Sequence[bytes],
        user: str,
        identifier: int,
        properties: Mapping[str, str],
    ) -> None:
        """Make the snapshot after one that was looked at; one try.

        Args:
            latest: that snapshot; None if there was none.
            messages: commit messages, all of one snapshot; none for an empty snapshot.
            user: whose commit it is.
            identifier: which of that user's.
            properties: of the snapshot.

        Raises:
            ConflictError: somebody else has made a snapshot since; nothing was committed.
            OSError: whether it was made is unknown.
        """
        once = _Once(self._io, self._snapshots)
        commit = FileStoreCommit(once, self.native, user)
        entries = commit._collect_manifest_entries([self.message(data) for data in messages])
        try:
            result = commit._try_commit_once(
                retry_result=None,
                commit_kind=_APPEND,
                commit_entries=entries,
                changelog_entries=[],
                commit_identifier=identifier,
                latest_snapshot=latest,
                snapshot_properties=properties,
            )
        except RuntimeError as error:  # as it translates whatever fails before the snapshot
            raise OSError(str(error)) from error
        if result.is_success():
            self._check_newest(once.snapshot, latest)
            return
        if result.exception is not None:
            raise OSError(str(result.exception)) from result.exception
        made = once.snapshot
        commit._clean_up_tmp_manifests(made.base_manifest_list, made.delta_manifest_list, None)
        raise ConflictError(f"snapshot {made.id} was made by somebody else")

    def _check_newest(self, made: Snapshot, latest: Snapshot | None) -> None:
        """Check that a snapshot continues the table, and point readers to it.

        The name was free all the same if this process was paused for so long that the snapshots
        after the one it had looked at have expired, if somebody has rolled that one back or
        replaced it, or if the table was dropped and created again.

        Raises:
            ConflictError: so it was; the snapshot is gone again.
        """
        later = [number for number in self.ids() if number >= made.id]
        continues = later == [*range(made.id, made.id + len(later))]
        if later == [made.id]:  # else another one stands on it
            continues = self.is_here(latest)
        if not continues:
            (self._snapshots / f"snapshot-{made.id}").unlink(missing_ok=True)
            sync(self._snapshots)
            raise ConflictError(f"snapshot {made.id} continued nothing")
        if later == [made.id]:
            _write_hint(self._snapshots / "LATEST", made.id)

    def is_here(self, latest: Snapshot | None) -> bool:
        """Return whether the table has a snapshot that was looked at, or has had it until it
        expired; the oldest expire first.
        """
        if latest is None:
            return self._first == first_schema(self.location)
        found = self.snapshot(latest.id)
        if found is None:
            return all(number > latest.id for number in self.ids())
        return bool(found.uuid == latest.uuid)

    @cached_property
    def _partition_fields(self) -> Any:
        return self.native.partition_keys_fields


class _Once(SnapshotCommit):  # type: ignore[misc]  # pypaimon has no types here
    """Publishes one snapshot under its name, if that is free."""

    def __init__(self, io: SyncedFileIO, folder: Path) -> None:
        self._io = io
        self._folder = folder
        self.snapshot: Any = None

    def commit(self, base_snapshot_uuid: str | None, snapshot: Snapshot, statistics: Any) -> bool:
        """See `SnapshotCommit.commit`."""
        del base_snapshot_uuid, statistics
        self.snapshot = snapshot
        path = self._folder / f"snapshot-{snapshot.id}"
        return self._io.try_to_write_atomic(str(path), JSON.to_json(snapshot, indent=2))

    def close(self) -> None:
        """See `SnapshotCommit.close`."""


class _StagedDataWriter(AppendOnlyDataWriter):  # type: ignore[misc]  # the same
    """Writes one file where the sink stages it."""

    def __init__(self, table: FileStoreTable, partition: Values, path: Path) -> None:
        super().__init__(table, partition, _BUCKET, 0, options=table.options)
        self._path = path
        self.file: NewFile

    def _generate_file_path(self, file_name: str) -> str:
        del file_name
        return str(self._path)

    def _write_file(self, file_path: str, data: pa.Table, file_format: str) -> dict[str, Any]:
        del file_path, file_format  # it is parquet, by `layout.check_table`
        # Paimon's own writer knows it by either name, pyarrow by one.
        codec = {"uncompressed": "none"}.get(known := self.compression.lower(), known)
        level = {"compression_level": self.zstd_level} if codec == "zstd" else {}
        with NewFile(self._path) as self.file:
            pq.write_table(
                data,
                self.file,
                compression=codec,
                **level,
                **{"write_statistics": with_bounds(data), **self.parquet_writer_options},
            )
            self.file.sync()
        return {}

    @staticmethod
    def _get_column_stats(record_batch: pa.Table, column_name: str) -> dict[str, Any]:
        """Leave out bounds that a reader could not rely on, or that are longer than a file's entry
        should be: without bounds it reads the file.
        """
        column = record_batch.column(column_name)
        found: dict[str, Any] = AppendOnlyDataWriter._get_column_stats(record_batch, column_name)
        if _has_bounds(column, found["min_values"], found["max_values"]):
            return found
        return {**found, "min_values": None, "max_values": None}


def _has_bounds(column: pa.ChunkedArray, *bounds: Any) -> bool:
    kind = column.type
    if pa.types.is_floating(kind):
        return not pc.any(pc.is_nan(column)).as_py()
    if pa.types.is_string(kind):
        return all(bound is None or len(bound.encode()) <= _BOUND_BYTES for bound in bounds)
    return not pa.types.is_binary(kind)


def newest_schema(location: Path) -> Schema | None:
    """Return the newest schema of a table; None if there is no table in this folder."""
    found = SchemaManager(SyncedFileIO(), str(location)).latest()
    return None if found is None else Schema(found)


def create_table(location: Path, rows: pa.Schema, partition_by: Sequence[str]) -> None:
    """Create a table for rows, unless somebody else has just created it.

    Args:
        location: its folder.
        rows: the columns.
        partition_by: the names of the partition columns.
    """
    for folder in (*reversed(location.parents), location):
        make_folder(folder)
    schema = NewSchema.from_pyarrow_schema(rows, partition_keys=[*partition_by])
    manager = SchemaManager(SyncedFileIO(), str(location))
    manager.commit(TableSchema.from_schema(schema_id=0, schema=schema))


def _write_hint(path: Path, number: int) -> None:
    """Replace the hint that tells readers of the newest snapshot; they can do without."""
    temporary = path.with_name(f".{path.name}.{number}.tmp")
    temporary.write_text(str(number))
    temporary.replace(path)
