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
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from harness.paimon_harness import TABLE, PaimonHarness
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, Predecessor, SinkContext
from twophase.sinks.paimon.open_sink import OpenPaimonSink
from twophase.sinks.paimon.private_api import PaimonTable
from twophase.testing.harness import JOB, SINK, Row

FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])

Change = Callable[[PaimonHarness], None]


def rows(*ids: int) -> list[Row]:
    return [{"id": number, "name": f"row {number}", "amount": number / 2} for number in ids]


def ids_of(harness: PaimonHarness) -> list[int]:
    return sorted(row["id"] for row in harness.rows_visible())


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


def dying_after_publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit makes its snapshot and does not hear of it."""
    publish = PaimonTable.publish

    def dies(self: PaimonTable, *given: Any) -> None:
        monkeypatch.undo()
        publish(self, *given)
        raise OSError("the answer is lost")

    monkeypatch.setattr(PaimonTable, "publish", dies)


def snapshots(harness: PaimonHarness) -> list[int]:
    """The ids of the snapshots."""
    names = (harness.location / "snapshot").glob("snapshot-*")
    return sorted(int(path.name.removeprefix("snapshot-")) for path in names)


def expire(harness: PaimonHarness, up_to: int) -> None:
    """Expire snapshots, as other engines do: their files go, the oldest first."""
    for number in snapshots(harness):
        if number <= up_to:
            (harness.location / "snapshot" / f"snapshot-{number}").unlink()


def rewrite(harness: PaimonHarness) -> None:
    """Replace all files by one, as a compaction of other engines does."""
    found = harness.read()
    builder = harness.table().new_batch_write_builder().overwrite()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(found)
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


def add_a_required_column(harness: PaimonHarness) -> None:
    """As other engines can; pypaimon refuses it."""
    add_a_column(harness)
    newest = newest_schema(harness)
    newest.write_text(newest.read_text().replace('"STRING"', '"STRING NOT NULL"', 2))
    text = json.loads(newest.read_text())
    for field in text["fields"]:
        if field["name"] != "note":
            field["type"] = field["type"].replace(" NOT NULL", "")
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
