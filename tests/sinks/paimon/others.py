"""What others do to a Paimon table, and helpers of the tests here."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.write.table_delete import TableDeleteByRowId

from harness.paimon_harness import TABLE, PaimonHarness
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, Predecessor, SinkContext
from twophase.sinks.paimon.open_sink import OpenPaimonSink
from twophase.sinks.paimon.private_api import PaimonTable
from twophase.testing.harness import JOB, SINK, Row

FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
PARTED = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float32()), ("part", pa.string())]
)
THEIRS = 100
"""The id of a row of another application."""

Change = Callable[[PaimonHarness], None]


def rows(*ids: int) -> list[Row]:
    return [{"id": number, "name": f"row {number}", "amount": number / 2} for number in ids]


def parted(*ids: int) -> list[Row]:
    """Rows of a table that is partitioned by `part`: odd ids and even ones."""
    return [row | {"part": "odd" if row["id"] % 2 else "even"} for row in rows(*ids)]


def ids_of(harness: PaimonHarness) -> list[int]:
    try:
        found = harness.read()
    except TableNotExistException:
        return []
    return sorted(found.column("id").to_pylist())


def committed(
    sink: OpenPaimonSink, *pieces: Committable, predecessor: Predecessor | None = None
) -> Sequence[CommitOutcome]:
    return sink.commit([CommitRequest(piece, predecessor=predecessor) for piece in pieces])


def rival_of(harness: PaimonHarness) -> OpenPaimonSink:
    """A driver over a copy of the job's folder."""
    return harness.new_sink().open(SinkContext(JOB, SINK, harness.fields, parallelism=2))


def before_publishing(
    monkeypatch: pytest.MonkeyPatch, what: Callable[[], object], *, always: bool = False
) -> None:
    """Do something, once or always, between a commit's look and its snapshot."""
    publish, busy = PaimonTable.publish, list[bool]()

    def late(self: PaimonTable, *given: Any) -> None:
        if not busy:
            busy.append(True)
            what()
            if always:
                busy.clear()
        publish(self, *given)

    monkeypatch.setattr(PaimonTable, "publish", late)


def dying_after_publishing(
    monkeypatch: pytest.MonkeyPatch, what: Callable[[], object] = lambda: None
) -> None:
    """The next commit makes its snapshot, something is done, and it does not hear of it."""
    publish = PaimonTable.publish

    def dies(self: PaimonTable, *given: Any) -> None:
        monkeypatch.undo()
        publish(self, *given)
        what()
        raise OSError("the answer is lost")

    monkeypatch.setattr(PaimonTable, "publish", dies)


def dying_before_publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit moves its files and makes no snapshot."""

    def dies(*_: Any) -> None:
        monkeypatch.undo()
        raise OSError("no space")

    monkeypatch.setattr(PaimonTable, "publish", dies)


def snapshots(harness: PaimonHarness) -> list[int]:
    """The ids of the snapshots."""
    names = (harness.location / "snapshot").glob("snapshot-*")
    return sorted(int(path.name.removeprefix("snapshot-")) for path in names)


def append(harness: PaimonHarness) -> None:
    harness.append(parted(THEIRS))


def append_and_roll_back(harness: PaimonHarness) -> None:
    """Take back rows of their own alone."""
    newest = snapshots(harness)[-1]
    append(harness)
    harness.table().rollback_to(newest)


def append_and_expire(harness: PaimonHarness) -> None:
    append(harness)
    expire(harness, snapshots(harness)[-2])


def roll_back(harness: PaimonHarness) -> None:
    """To the first snapshot."""
    harness.table().rollback_to(1)


def roll_back_and_append(harness: PaimonHarness) -> None:
    roll_back(harness)
    append(harness)


def overwrite(harness: PaimonHarness) -> None:
    _overwrite(harness, pa.Table.from_pylist(parted(THEIRS), schema=harness.fields))


def overwrite_a_partition(harness: PaimonHarness) -> None:
    given = pa.Table.from_pylist(parted(THEIRS), schema=harness.fields)
    _overwrite(harness, given, part="even")


def truncate(harness: PaimonHarness) -> None:
    harness.table().new_batch_write_builder().new_commit().truncate_table()


def delete_a_partition(harness: PaimonHarness) -> None:
    commit = harness.table().new_batch_write_builder().new_commit()
    commit.truncate_partitions([{"part": "even"}])


def delete_a_row(harness: PaimonHarness) -> None:
    """By a deletion vector, as Spark's DELETE does; pypaimon does it by row ids alone."""
    table = harness.table()
    plan = table.new_read_builder().new_scan().plan()
    [name, *_] = [
        split.files[0].file_name for split in plan.splits() if split.partition.values == ["even"]
    ]
    deletes = TableDeleteByRowId(table)
    message = deletes._build_commit_message(("even",), 0, {name: {0}}, plan.snapshot_id)
    table.new_batch_write_builder().new_commit().commit([message])


def make_a_tag(harness: PaimonHarness) -> None:
    harness.table().create_tag("theirs")


def delete_a_tag(harness: PaimonHarness) -> None:
    harness.table().create_tag("theirs")
    harness.table().delete_tag("theirs")


def expire(harness: PaimonHarness, up_to: int) -> None:
    """Expire snapshots, as other engines do: their files go, the oldest first."""
    for number in snapshots(harness):
        if number <= up_to:
            (harness.location / "snapshot" / f"snapshot-{number}").unlink()


def rewrite(harness: PaimonHarness) -> None:
    """Replace all files by one of each partition, as a compaction of other engines does."""
    _overwrite(harness, harness.read())


def _overwrite(harness: PaimonHarness, by: pa.Table, **partition: str) -> None:
    table = harness.table().copy({"dynamic-partition-overwrite": "false"})
    builder = table.new_batch_write_builder().overwrite(partition)
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(by)
    commit.commit(write.prepare_commit())


def replace_newest(harness: PaimonHarness) -> None:
    """A writer that does not look takes the name of the newest snapshot."""
    path = harness.location / "snapshot" / f"snapshot-{snapshots(harness)[-1]}"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"uuid": str(uuid.uuid4())}))


def alter(*changes: SchemaChange) -> Change:
    def change(harness: PaimonHarness) -> None:
        catalog_of(harness).alter_table(TABLE, [*changes], False)

    return change


drop_a_column = alter(SchemaChange.drop_column("amount"))
retype_a_column = alter(SchemaChange.update_column_type("id", AtomicType("STRING")))
add_a_column = alter(SchemaChange.add_column("note", AtomicType("STRING")))
rename_a_column = alter(SchemaChange.rename_column("name", "title"))
widen_a_column = alter(SchemaChange.update_column_type("amount", AtomicType("DOUBLE")))
set_an_option = alter(SchemaChange.set_option("snapshot.num-retained.max", "99"))
write_orc = alter(SchemaChange.set_option("file.format", "orc"))


def replace_a_column(harness: PaimonHarness) -> None:
    drop_a_column(harness)
    alter(SchemaChange.add_column("amount", AtomicType("DOUBLE")))(harness)


def require_a_column(harness: PaimonHarness) -> None:
    alter(SchemaChange.set_option("alter-column-null-to-not-null.disabled", "false"))(harness)
    alter(SchemaChange.update_column_nullability("name", False))(harness)


def drop_it(harness: PaimonHarness) -> None:
    catalog_of(harness).drop_table(TABLE)


def create_it_again(harness: PaimonHarness) -> None:
    drop_it(harness)
    make_table(harness, partition_keys=["part"] if "part" in harness.fields.names else [])


def add_a_required_column(harness: PaimonHarness) -> None:
    """As other engines can; pypaimon refuses it."""
    add_a_column(harness)
    newest = newest_schema(harness)
    text = json.loads(newest.read_text())
    text["fields"][-1]["type"] = "STRING NOT NULL"
    newest.write_text(json.dumps(text))


def newest_schema(harness: PaimonHarness) -> Path:
    folder = harness.location / "schema"
    return max(folder.iterdir(), key=lambda path: int(path.name.removeprefix("schema-")))


def catalog_of(harness: PaimonHarness) -> Any:
    return CatalogFactory.create({"warehouse": str(harness.folder)})


def make_table(harness: PaimonHarness, **given: Any) -> None:
    """Create the table as another application does."""
    catalog = catalog_of(harness)
    catalog.create_database("shop", True)
    schema = Schema.from_pyarrow_schema(given.pop("fields", harness.fields), **given)
    catalog.create_table(TABLE, schema, False)


def set_in_schema(harness: PaimonHarness, options: dict[str, str]) -> None:
    """Set options of the table that pypaimon does not set, as another engine does."""
    path = harness.location / "schema" / "schema-0"
    schema = json.loads(path.read_text())
    schema["options"] |= options
    path.write_text(json.dumps(schema))
