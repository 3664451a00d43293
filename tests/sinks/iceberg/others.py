"""What other applications do to a table, and rows that are told apart by their ids."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetSnapshotRefUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from harness.iceberg_harness import TABLE, IcebergHarness
from twophase.contract.sink import SinkContext
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.testing.harness import JOB, SINK

FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float32())])
Change = Callable[[Table], object]


def rows(*ids: int) -> list[dict[str, object]]:
    return [{"id": number, "name": f"row {number}", "amount": number / 2} for number in ids]


def theirs(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(rows(*ids), schema=FIELDS)


def ids_of(harness: IcebergHarness) -> list[int]:
    return sorted(harness.rows_of(harness.branch).column("id").to_pylist())


def change(harness: IcebergHarness, what: Change) -> None:
    with closing(harness.catalog()) as catalog:
        what(catalog.load_table(TABLE))


def roll_back(table: Table, snapshot: int | None = None) -> None:
    """Set main back to its first snapshot, or to one."""
    first = min(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
    update = SetSnapshotRefUpdate(  # type: ignore[call-arg]  # its ages have defaults
        ref_name="main", type="branch", snapshot_id=snapshot or first.snapshot_id
    )
    table.catalog.commit_table(table, (), (update,))


def add_a_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("note", StringType())


def rename_a_column(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("name", "label")


def widen_a_column(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("amount", DoubleType())


def partition_it(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")


def set_a_property(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})


def append(table: Table) -> None:
    table.append(theirs(100))


def overwrite(table: Table) -> None:
    table.overwrite(theirs(100))


def delete(table: Table) -> None:
    table.delete("id = 0")


def expire(table: Table) -> None:
    table.append(theirs(100))
    table.maintenance.expire_snapshots().by_ids(
        [
            one.snapshot_id
            for one in table.metadata.snapshots
            if one.snapshot_id not in {ref.snapshot_id for ref in table.metadata.refs.values()}
        ]
    ).commit()


def drop_a_column(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("amount")


def require_a_column(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", required=True)


def replace_a_column(table: Table) -> None:
    drop_a_column(table)
    with table.update_schema() as update:
        update.add_column("amount", LongType())


def retype_a_column(table: Table) -> None:
    """As a tool that keeps the column's id does, though its values no longer fit."""
    fields = [
        field.model_copy(update={"field_type": StringType()}) if field.name == "amount" else field
        for field in table.schema().fields
    ]
    set_schema(table, fields)


def add_a_required_column(table: Table) -> None:
    set_schema(table, [*table.schema().fields, NestedField(4, "note", StringType(), required=True)])


def upgrade(patch: pytest.MonkeyPatch) -> None:
    """Another engine has raised the format version to 3, which pyiceberg cannot write."""
    load = Catalog.load

    def upgraded(self: Catalog) -> Table:
        table = load(self)
        table.metadata = table.metadata.model_copy(update={"format_version": 3})
        return table

    patch.setattr(Catalog, "load", upgraded)


def set_schema(table: Table, fields: list[NestedField]) -> None:
    number = max(table.schemas()) + 1
    added = AddSchemaUpdate(schema=Schema(*fields, schema_id=number))  # type: ignore[call-arg]
    current = SetCurrentSchemaUpdate(schema_id=number)
    table.catalog.commit_table(table, (), (added, current))


def before_the_swap(monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]) -> None:
    """Do something once, between the manifests of a commit and the swap."""
    commit, done = Catalog.commit, list[bool]()

    def late(self: Catalog, *given: object) -> None:
        if not done:
            done.append(True)
            what()
        commit(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Catalog, "commit", late)


def rival_of(harness: IcebergHarness) -> OpenIcebergSink:
    """A driver over a copy of the job's folder."""
    return harness.new_sink().open(SinkContext(JOB, SINK, harness.fields, parallelism=2))


def write_delete_file(table: Table) -> None:
    """Append a file of positional deletes, as other engines delete rows by merge on read."""
    producer = _DeleteFile(Operation.DELETE, table.transaction(), table.io)
    found = next(iter(table.scan().plan_files())).file
    position = pa.table({"file_path": [found.file_path], "pos": pa.array([0], pa.int64())})
    path = f"{table.location()}/data/deletes-{uuid.uuid4()}.parquet"
    names = {"file_path": b"2147483546", "pos": b"2147483545"}
    fields = [
        pa.field(name, position.schema.field(name).type, False, {b"PARQUET:field_id": number})
        for name, number in names.items()
    ]
    with table.io.new_output(path).create() as file:
        pq.write_table(position.cast(pa.schema(fields)), file)
    producer.append_data_file(
        DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=len(table.io.new_input(path)),
            spec_id=table.spec().spec_id,
        )
    )
    updates, requirements = producer._commit()
    table.catalog.commit_table(table, requirements, updates)


class _DeleteFile(_FastAppendFiles):
    """A snapshot whose new manifest is one of delete files."""

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        made = super().new_manifest_writer(spec)
        made.content = lambda: ManifestContent.DELETES  # type: ignore[method-assign]
        return made
