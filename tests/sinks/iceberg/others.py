"""What other applications do to a table, and rows that are told apart by their ids."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemovePartitionSpecsUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    SetSnapshotRefUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles, _SnapshotProducer
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, Predecessor, SinkContext
from twophase.errors import TargetUnreachableError
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.testing.harness import JOB, SINK
from twophase.testing.services.service import Service

FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float32())])
Change = Callable[[Table], object]


def lake(where: Path | Place) -> Path | Place:
    """Return where a table is: in a folder of a test, or where a test of many catalogs says."""
    return where / "lake" if isinstance(where, Path) else where


def rows(*ids: int) -> list[dict[str, object]]:
    return [{"id": number, "name": f"row {number}", "amount": number / 2} for number in ids]


def theirs(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(rows(*ids), schema=FIELDS)


def ids_of(harness: IcebergHarness) -> list[int]:
    return sorted(harness.rows_of(harness.branch).column("id").to_pylist())


def commit(
    harness: IcebergHarness,
    sink: OpenIcebergSink,
    made: list[dict[str, Any]],
    checkpoint: int = 0,
    before: Predecessor | None = None,
) -> None:
    """Commit rows as the only piece of a checkpoint."""
    request = CommitRequest(harness.write(sink, made, checkpoint), predecessor=before)
    assert sink.commit([request]) == [Committed()]


def change(harness: IcebergHarness, what: Change) -> None:
    with closing(harness.catalog()) as catalog:
        what(catalog.load_table(harness.place.table))


def roll_back(table: Table, snapshot: int | None = None) -> None:
    """Set main back to its first snapshot with rows, or to one."""
    with_rows = [one for one in table.metadata.snapshots if _has_rows(one)]
    first = min(with_rows, key=lambda one: one.timestamp_ms)
    set_main(table, snapshot or first.snapshot_id)


def set_main(table: Table, snapshot: int) -> None:
    update = SetSnapshotRefUpdate(  # type: ignore[call-arg]  # its ages have defaults
        ref_name="main", type="branch", snapshot_id=snapshot
    )
    table.catalog.commit_table(table, (), (update,))


def append_and_roll_back(table: Table) -> None:
    """Take back rows of their own alone: main leads to the snapshot of before."""
    head = table.metadata.refs["main"].snapshot_id
    append(table)
    roll_back(table, head)


def replace_main(table: Table) -> None:
    """By a branch that has left main at its first snapshot with rows."""
    first = next(one for one in snapshots_of(table) if _has_rows(one))
    table.manage_snapshots().create_branch(first.snapshot_id, "side").commit()
    table.append(theirs(100), branch="side")
    set_main(table, table.metadata.refs["side"].snapshot_id)


def snapshots_of(table: Table) -> list[Snapshot]:
    """Return the snapshots of a table, the oldest first, but for fences."""
    found = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
    return [one for one in found if not (one.summary and one.summary["twophase.fence"])]


def _has_rows(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary["total-records"] != "0"


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


def compact(table: Table) -> None:
    """As `rewrite_data_files` does: all rows into one file."""
    producer = table.transaction().update_snapshot().overwrite()
    for task in table.scan().plan_files():
        producer.delete_data_file(task.file)
    for file in _dataframe_to_data_files(table.metadata, table.scan().to_arrow(), table.io):
        producer.append_data_file(file)
    _commit_replace(table, producer)


def rewrite_manifests(table: Table) -> None:
    """As the procedure of that name does: one manifest of all files."""
    producer = table.transaction().update_snapshot().merge_append()
    producer._merge_enabled, producer._min_count_to_merge = True, 1
    _commit_replace(table, producer)


def _commit_replace(table: Table, producer: _SnapshotProducer[Any]) -> None:
    """Commit a snapshot as a `replace`, an operation that pyiceberg itself has none of."""
    (added, *rest), requirements = producer._commit()
    assert isinstance(added, AddSnapshotUpdate)
    assert added.snapshot.summary is not None
    summary = Summary(Operation.REPLACE, **added.snapshot.summary.additional_properties)
    snapshot = added.snapshot.model_copy(update={"summary": summary})
    table.catalog.commit_table(table, requirements, (AddSnapshotUpdate(snapshot=snapshot), *rest))


def drop_it(table: Table) -> None:
    table.catalog.drop_table(table.name())


def create_it_again(table: Table) -> None:
    drop_it(table)
    table.catalog.create_table(table.name(), table.schema())


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


def upgrade(table: Table) -> None:
    """To version 3, as another engine does: pyiceberg itself does not."""
    raised = UpgradeFormatVersionUpdate(format_version=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyiceberg.table.update.SUPPORTED_TABLE_FORMAT_VERSION", 3)
        patch.setattr(TableMetadataV3, "model_dump_json", IcebergBaseModel.model_dump_json)
        table.catalog.commit_table(table, (), (raised,))


def move(table: Table) -> None:
    """Let new files go elsewhere."""
    to = SetLocationUpdate(location=f"{table.location()}-2")
    table.catalog.commit_table(table, (), (to,))


def replace_the_spec(table: Table) -> None:
    """Of a table that has no files yet."""
    partition_it(table)
    table.refresh()
    table.catalog.commit_table(table, (), (RemovePartitionSpecsUpdate(spec_ids=[0]),))


def remove_the_spec(table: Table) -> None:
    """As engines do once no snapshot has a file of it."""
    partition_it(table)
    for what in (compact, append, expire):
        table.refresh()
        what(table)
    table.refresh()
    table.catalog.commit_table(table, (), (RemovePartitionSpecsUpdate(spec_ids=[0]),))


def set_schema(table: Table, fields: list[NestedField]) -> None:
    number = max(table.schemas()) + 1
    added = AddSchemaUpdate(schema=Schema(*fields, schema_id=number))  # type: ignore[call-arg]
    current = SetCurrentSchemaUpdate(schema_id=number)
    table.catalog.commit_table(table, (), (added, current))


def before_the_swap(
    monkeypatch: pytest.MonkeyPatch, what: Callable[[], None], times: int = 1
) -> None:
    """Do something once, or in so many tries, between the manifests of a commit and the swap."""
    commit, done = Catalog.commit, list[bool]()

    def late(self: Catalog, *given: object) -> None:
        if len(done) < times:
            done.append(True)
            what()
        commit(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Catalog, "commit", late)


def after_the_swap(monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]) -> None:
    """Do something once, when a commit has taken effect; its reply is lost."""
    swap = Catalog._swap

    def lost(self: Catalog, change: Any) -> None:
        monkeypatch.setattr(Catalog, "_swap", swap)
        swap(self, change)
        what()
        raise OSError("the reply is lost")

    monkeypatch.setattr(Catalog, "_swap", lost)


def arrives_twice(
    monkeypatch: pytest.MonkeyPatch, after: Callable[[], object] = lambda: None
) -> None:
    """Repeat the next commit once it has taken effect, as a gateway does or a metastore itself: the
    second is refused.

    Args:
        monkeypatch: undone after the test.
        after: done between the refusal and the sink.
    """
    swap = Catalog._swap

    def repeated(self: Catalog, change: Any) -> None:
        monkeypatch.setattr(Catalog, "_swap", swap)
        swap(self, change)
        with pytest.raises(CommitFailedException) as refused:
            swap(self, change)
        after()
        raise refused.value

    monkeypatch.setattr(Catalog, "_swap", repeated)


def restore(harness: IcebergHarness, was: Table) -> None:
    """Give the name of a table back to it, whatever bears it now."""
    with closing(harness.catalog()) as catalog:
        try:
            catalog.drop_table(harness.place.table)
        except NoSuchTableError:
            """Nobody has taken the name."""
        catalog.register_table(harness.place.table, was.metadata_location)


def rival_of(harness: IcebergHarness) -> OpenIcebergSink:
    """A driver over a copy of the job's folder."""
    return harness.new_sink().open(SinkContext(JOB, SINK, harness.fields, parallelism=2))


def advice_while_down(harness: IcebergHarness, server: Service, named: str) -> str:
    """Kill a catalog under a running sink and start it again, after which the sink commits.

    Return what each call has advised meanwhile.
    """
    sink = harness.opened()
    request = CommitRequest(harness.write(sink, rows(0)))
    server.kill()
    advised = set()
    try:
        for call in (
            harness.new_sink().check_connection,
            harness.opened,
            lambda: sink.commit([request]),
        ):
            with pytest.raises(TargetUnreachableError, match=named) as caught:
                call()
            advised.add(caught.value.remedy)
    finally:
        server.restart()
    assert sink.commit([request]) == [Committed()]
    harness.opened().close()
    assert ids_of(harness) == [0]
    [advice] = advised
    return advice


def write_delete_file(
    table: Table,
    of: DataFile | None = None,
    names_it: str = "",
    content: DataFileContent = DataFileContent.POSITION_DELETES,
    spec: int | None = None,
) -> None:
    """Append a delete file, as other engines delete rows by merge on read.

    Args:
        table: the table.
        of: the data file whose first row is deleted; any one if None.
        names_it: how the delete file tells which data file it is of: "by bounds" or "by reference".
        content: of positions, or of values that are deleted wherever they are.
        spec: the id of the partition spec of the file; the table's if None.
    """
    file = of or next(iter(table.scan().plan_files())).file
    path = f"{table.location()}/data/deletes-{uuid.uuid4()}.parquet"
    is_positional = content == DataFileContent.POSITION_DELETES
    rows = (
        pa.table({"file_path": [file.file_path], "pos": pa.array([0], pa.int64())})
        if is_positional
        else pa.table({"id": pa.array([-1], pa.int64())})
    )
    ids = {"file_path": _PATH, "pos": _PATH - 1, "id": 1}
    fields = [
        pa.field(one.name, one.type, False, {b"PARQUET:field_id": str(ids[one.name]).encode()})
        for one in rows.schema
    ]
    with table.io.new_output(path).create() as output:
        pq.write_table(rows.cast(pa.schema(fields)), output)
    bounds = {_PATH: file.file_path.encode()} if names_it == "by bounds" else None
    made = DataFile.from_args(
        _table_format_version=3,
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=1,
        file_size_in_bytes=len(table.io.new_input(path)),
        lower_bounds=bounds,
        upper_bounds=bounds,
        equality_ids=None if is_positional else [1],
        referenced_data_file=file.file_path if names_it == "by reference" else None,
    )
    made.spec_id = table.spec().spec_id if spec is None else spec
    table.metadata = table.metadata.model_copy(update={"default_spec_id": made.spec_id})
    producer = _DeleteFile(Operation.DELETE, table.transaction(), table.io)
    producer.append_data_file(made)
    updates, requirements = producer._commit()
    table.catalog.commit_table(table, requirements, updates)


_PATH = 2147483546
"""The id of the column of paths in positional deletes."""


class _DeleteFile(_FastAppendFiles):
    """A snapshot whose new manifest is one of delete files, with the field that pyiceberg leaves
    out: the data file that a delete file is of.
    """

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        made = super().new_manifest_writer(spec)
        fields = made._with_partition(3)

        def whole() -> AvroOutputFile[ManifestEntry]:
            return AvroOutputFile[ManifestEntry](
                output_file=made._output_file,
                file_schema=fields,
                record_schema=fields,
                schema_name="manifest_entry",
                metadata=made._meta,
            )

        made.content = lambda: ManifestContent.DELETES  # type: ignore[method-assign]
        made.new_writer = whole  # type: ignore[method-assign]
        return made
