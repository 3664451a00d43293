"""Name mapping: files of others that have no ids, beside the sink's, which have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table, TableProperties

from harness.iceberg_harness import IcebergHarness
from tests.sinks.iceberg.others import FIELDS, change, commit, rename_a_column, rows
from tests.sinks.iceberg.test_rows import FULL, NESTED

KEY = TableProperties.DEFAULT_NAME_MAPPING
_ID = b"PARQUET:field_id"


def written(harness: IcebergHarness, made: list[dict[str, Any]], checkpoint: int = 0) -> None:
    """Commit rows by a start of the job."""
    sink = harness.opened()
    commit(harness, sink, made, checkpoint)
    sink.close()


def add_without_ids(harness: IcebergHarness, made: list[dict[str, Any]], fields: pa.Schema) -> None:
    """Add a file that another application has written with the names of its columns only."""
    path = harness.folder / f"theirs-{made[0]['id']}.parquet"
    pq.write_table(pa.Table.from_pylist(made, schema=fields), path)
    assert not any(_ID in (field.metadata or {}) for field in pq.read_schema(path))
    change(harness, lambda table: table.add_files([str(path)]))


def map_names(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({KEY: table.schema().name_mapping.model_dump_json()})


def read(harness: IcebergHarness, duck: duckdb.DuckDBPyConnection) -> Iterator[list[Any]]:
    """All rows, by pyiceberg and by DuckDB."""
    table = harness.table()
    query = f"SELECT * FROM iceberg_scan('{table.metadata_location}')"
    for found in (table.scan().to_arrow(), duck.execute(query).to_arrow_table()):
        yield sorted(found.to_pylist(), key=lambda row: row["id"])


def ids_in(field: pa.Field) -> Iterator[int | None]:
    """The ids of a column of a file, and of all that is inside it."""
    written = (field.metadata or {}).get(_ID)
    yield None if written is None else int(written)
    kind = field.type
    inside = (
        [kind.key_field, kind.item_field]
        if pa.types.is_map(kind)
        else [kind.field(number) for number in range(kind.num_fields)]
    )
    for inner in inside:
        yield from ids_in(inner)


@pytest.mark.parametrize("version", [1, 2])
def test_each_column_of_a_file_and_each_field_inside_it_has_its_id(
    tmp_path: Path, version: int
) -> None:
    harness = IcebergHarness(tmp_path / "lake", NESTED, format_version=version)
    written(harness, [FULL])
    table = harness.table()
    [task] = table.scan().plan_files()
    file = pq.read_schema(task.file.file_path.removeprefix("file://"))
    found = [number for field in file for number in ids_in(field)]
    assert None not in found
    assert sorted(number for number in found if number) == sorted(table.schema().field_ids)
    assert KEY not in table.properties


@pytest.mark.parametrize("version", [1, 2])
def test_files_without_ids_are_read_by_name_beside_those_of_the_sink(
    tmp_path: Path, version: int, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS, format_version=version)
    written(harness, rows(1))
    add_without_ids(harness, rows(2), FIELDS)
    mapped = harness.table().properties[KEY]
    written(harness, rows(3), 1)
    assert harness.table().properties[KEY] == mapped
    for found in read(harness, duck):
        assert found == rows(1, 2, 3)


def test_a_column_that_was_renamed_is_found_in_files_without_ids_and_in_those_of_the_sink(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS)
    written(harness, rows(1))
    change(harness, map_names)
    add_without_ids(harness, rows(2), FIELDS)
    change(harness, rename_a_column)
    harness.fields = pa.schema(
        [field.with_name({"name": "label"}.get(field.name, field.name)) for field in FIELDS]
    )
    renamed = [
        {"id": row["id"], "label": row["name"], "amount": row["amount"]} for row in rows(1, 2, 3)
    ]
    written(harness, renamed[2:], 1)
    for found in read(harness, duck):
        assert found == renamed


@pytest.mark.parametrize("name", ["note", "a.b", "Ünï"])
def test_a_column_that_a_start_has_added_is_found_in_later_files_without_ids(
    tmp_path: Path, name: str, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS, schema_change="add_columns")
    written(harness, rows(1))
    add_without_ids(harness, rows(2), FIELDS)
    harness.fields = FIELDS.append(pa.field(name, pa.string()))
    noted = [row | {name: "noted"} for row in rows(3, 4)]
    written(harness, noted[:1], 1)
    add_without_ids(harness, noted[1:], harness.fields)
    mapped = json.loads(harness.table().properties[KEY])
    assert [entry["names"] for entry in mapped] == [[field] for field in harness.fields.names]
    for found in read(harness, duck):
        assert found == [*(row | {name: None} for row in rows(1, 2)), *noted]
