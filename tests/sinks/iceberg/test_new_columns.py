"""`schema_change=add_columns`: a start adds columns of the rows that the table lacks, and nothing
else of the table changes.
"""

from __future__ import annotations

import json
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType
from sqlalchemy.exc import OperationalError

from harness.iceberg_harness import TABLE, IcebergHarness
from tests.sinks.iceberg.others import (
    FIELDS,
    Change,
    append,
    before_the_swap,
    change,
    commit,
    drop_a_column,
    rename_a_column,
    rival_of,
    rows,
    widen_a_column,
)
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import ConfigError, StopJobError, TargetUnreachableError
from twophase.sinks.iceberg.catalog import Catalog
from twophase.testing.harness import JOB, SINK

MORE = pa.schema(
    [
        *FIELDS,
        pa.field("a.b", pa.string()),
        pa.field("point", pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])),
        pa.field("price", pa.decimal128(12, 2)),
    ]
)
FULL: dict[str, Any] = {
    **rows(1)[0],
    "a.b": "text",
    "point": {"x": 7, "tags": ["a", None]},
    "price": Decimal("1.25"),
}


@pytest.fixture
def harness(tmp_path: Path) -> IcebergHarness:
    """A table with one row, and rows to come with more columns."""
    harness = IcebergHarness(tmp_path / "lake", FIELDS, schema_change="add_columns")
    commit(harness, harness.opened(), rows(0), 0)
    harness.fields = MORE
    return harness


def columns(harness: IcebergHarness) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in harness.table().schema().fields}


def test_a_start_adds_the_columns_as_optional_ones_and_older_rows_have_nulls(
    harness: IcebergHarness,
) -> None:
    known = harness.table().schema()
    sink = harness.opened()
    schema = harness.table().schema()
    assert schema.fields[:3] == known.fields
    assert [field.name for field in schema.fields[3:]] == ["a.b", "point", "price"]
    assert not any(field.required for field in schema.fields)
    ids = [*schema._lazy_id_to_name]
    assert len(set(ids)) == len(ids) == 9
    commit(harness, sink, [FULL], 1)
    found = sorted(harness.rows_visible(), key=lambda row: row["id"])
    # pyiceberg reads a struct that a file lacks as null
    assert found == [{**dict.fromkeys(MORE.names), **rows(0)[0]}, FULL]


def test_a_start_that_has_nothing_to_add_changes_nothing(harness: IcebergHarness) -> None:
    harness.opened().close()
    before = harness.table().metadata
    rival_of(harness).close()
    assert harness.table().metadata == before


def test_a_look_adds_nothing(harness: IcebergHarness) -> None:
    before = harness.contents()
    harness.new_sink().check_connection()
    harness.new_sink().open(SinkContext(JOB, SINK, None, parallelism=1)).close()
    assert harness.contents() == before


def test_without_the_option_they_are_refused_by_name_and_with_it_added(
    harness: IcebergHarness,
) -> None:
    before = harness.contents()
    with pytest.raises(ConfigError, match=r"'a\.b' is not in the table; .*'point' is not") as error:
        harness.new_sink(schema_change="refuse").open(SinkContext(JOB, SINK, MORE, 1))
    assert "`schema_change=add_columns`" in error.value.remedy
    assert harness.contents() == before
    commit(harness, harness.opened(), [FULL], 1)


def test_pieces_that_wait_are_committed_with_the_columns_that_they_have(
    harness: IcebergHarness,
) -> None:
    harness.fields = FIELDS
    sink = harness.opened()
    piece = harness.write(sink, rows(2), 1)
    harness.fields = MORE
    sink = rival_of(harness)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert sorted(row["id"] for row in harness.rows_visible()) == [0, 2]


def one(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ([one("t", pa.time64("us"))], "column 't': time64.us. is not supported"),
        ([one("s", pa.struct([]))], "a struct without fields"),
        ([one("ID", pa.int64())], "'ID' is not in the table, and differs from 'id' in case only"),
        ([one("new", pa.int64()), one("NEW", pa.int64())], "column 'new' appears twice"),
    ],
    ids=lambda given: "" if isinstance(given, str) else str([field.name for field in given]),
)
def test_a_column_that_cannot_be_added_is_refused_and_none_is_added(
    harness: IcebergHarness, more: list[pa.Field], named: str
) -> None:
    harness.fields = pa.schema([*MORE, *more])
    before = harness.contents()
    with pytest.raises(ConfigError, match=named):
        rival_of(harness)
    assert harness.contents() == before


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ([("id", pa.string()), ("note", pa.string())], "column 'id': string does not fit long"),
        ([("amount", pa.float64()), ("note", pa.string())], "'amount': double does not fit float"),
    ],
)
def test_rows_that_do_not_fit_otherwise_are_refused_and_nothing_is_added(
    harness: IcebergHarness, fields: list[tuple[str, pa.DataType]], named: str
) -> None:
    harness.fields = pa.schema(fields)
    before = harness.contents()
    with pytest.raises(ConfigError, match=named):
        rival_of(harness)
    assert harness.contents() == before


def test_a_struct_gets_no_new_field(harness: IcebergHarness) -> None:
    rival_of(harness).close()
    wider = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string())), ("y", pa.int32())])
    harness.fields = pa.schema([*FIELDS, ("point", wider)])
    with pytest.raises(ConfigError, match="column 'point': its fields are"):
        rival_of(harness)


def test_a_required_column_that_the_rows_lack_is_refused_before_any_is_added(
    tmp_path: Path,
) -> None:
    new = pa.schema([("note", pa.string())])
    harness = IcebergHarness(tmp_path / "lake", new, schema_change="add_columns", create=False)
    with closing(harness.catalog()) as catalog:
        catalog.create_namespace("shop")
        catalog.create_table(TABLE, Schema(NestedField(1, "id", LongType(), required=True)))
    with pytest.raises(ConfigError, match="column 'id' is required, and the rows lack it"):
        harness.opened()
    assert columns(harness) == {"id": "long"}


def test_the_name_mapping_of_a_table_has_the_new_columns(harness: IcebergHarness) -> None:
    key = TableProperties.DEFAULT_NAME_MAPPING

    def map_names(table: Table) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({key: table.schema().name_mapping.model_dump_json()})

    change(harness, map_names)
    rival_of(harness).close()
    table = harness.table()
    mapped = json.loads(table.properties[key])
    assert [entry["names"] for entry in mapped][3:] == [["a.b"], ["point"], ["price"]]
    assert {entry["field-id"] for entry in mapped} == {
        field.field_id for field in table.schema().fields
    }


# -- at the same moment ----------------------------------------------------------------------------


def add_one_of_them(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("price", DecimalType(14, 2))


def add_it_otherwise(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("price", IntegerType())


def add_another(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("theirs", StringType())


OURS = ["a.b", "point", "price"]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (add_another, ["id", "name", "amount", "theirs", *OURS]),
        (add_one_of_them, ["id", "name", "amount", *OURS]),
        (append, ["id", "name", "amount", *OURS]),
        (widen_a_column, ["id", "name", "amount", *OURS]),
        (drop_a_column, ["id", "name", *OURS, "amount"]),
        (rename_a_column, ["id", "label", "amount", "name", *OURS]),
    ],
)
def test_what_others_change_meanwhile_is_looked_at_again(
    harness: IcebergHarness, what: Change, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_swap(monkeypatch, lambda: change(harness, what))
    sink = rival_of(harness)
    assert sorted(columns(harness)) == sorted(names)
    assert len(harness.table().schemas()) <= 3, "none is made of what was there before"
    commit(harness, sink, [FULL], 1)


def test_a_rival_that_adds_the_same_columns_adds_them_once(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_swap(monkeypatch, lambda: rival_of(harness).close())
    rival_of(harness).close()
    assert [*columns(harness)] == MORE.names


def test_a_column_that_somebody_adds_otherwise_meanwhile_is_refused_by_name(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_swap(monkeypatch, lambda: change(harness, add_it_otherwise))
    with pytest.raises(ConfigError, match=r"column 'price': decimal128.* does not fit int"):
        rival_of(harness)
    assert columns(harness).keys() == {*FIELDS.names, "price"}


@pytest.mark.parametrize("lands", [True, False])
def test_a_reply_that_is_lost_is_looked_at_again(
    harness: IcebergHarness, lands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_table = SqlCatalog.commit_table

    def lost(self: SqlCatalog, *given: object) -> None:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
        if lands:
            commit_table(self, *given)  # type: ignore[arg-type]
        raise OperationalError("COMMIT", {}, ConnectionResetError("gone"))

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    rival_of(harness).close()
    assert [*columns(harness)] == MORE.names
    assert len(harness.table().schemas()) == 2


def test_a_catalog_that_never_takes_them_is_named(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("the database is read-only")

    monkeypatch.setattr(Catalog, "commit", refuse)
    with pytest.raises(TargetUnreachableError, match=r"columns .* could not be added .*only"):
        rival_of(harness)


def test_a_column_that_was_dropped_under_waiting_files_is_not_covered_by_a_new_one(
    harness: IcebergHarness,
) -> None:
    """It has another id: their values would not be in it."""
    sink = rival_of(harness)
    piece = harness.write(sink, [FULL], 1)
    before = harness.table().metadata.current_schema_id
    change(harness, drop_a_column)
    again = rival_of(harness)
    with pytest.raises(StopJobError, match="the column of id 3 was dropped") as caught:
        again.commit([CommitRequest(piece)])
    assert "set the table's schema back" in caught.value.remedy

    def undo(table: Table) -> None:
        table.catalog.commit_table(table, (), (SetCurrentSchemaUpdate(schema_id=before),))

    change(harness, undo)
    assert again.commit([CommitRequest(piece)]) == [Committed()]
