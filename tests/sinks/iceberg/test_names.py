"""Names of every kind, of tables, namespaces, columns, partition fields and branches: they read
back as they were given, by pyiceberg and DuckDB, or are refused by name before anything is written.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.expressions import BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from harness.iceberg_harness import IcebergHarness
from tests.sinks.iceberg.others import change
from tests.sinks.iceberg.test_rows import commit
from twophase.errors import ConfigError

FIELDS = pa.schema([("id", pa.int64())])
ROWS = [{"id": 1}, {"id": 2}]

PLAIN = [
    "a b", "a'b", "a`b", "a\\b", "a\nb", "UPPER", "Ünï", "北京", "😀", "\u0301", "é" * 120,
    "x" * 200, "_twophase", "data", "metadata", "%", "%2e%2e", "a*b", "a[b]", "a:b", "a;b", "a=b",
    "{0}", "$x", "~", "-", "_", "1", "None", "main", "select",
]  # fmt: skip
"""Names that every part of a table may have."""


def filled(harness: IcebergHarness, rows: list[dict[str, Any]]) -> None:
    commit(harness, pa.RecordBatch.from_pylist(rows, schema=harness.fields))


def read_by_duckdb(duck: duckdb.DuckDBPyConnection, harness: IcebergHarness) -> list[Any]:
    table = harness.table()
    head = table.metadata.snapshot_by_name(harness.branch)
    assert head is not None
    location = table.metadata_location.replace("'", "''")
    query = f"SELECT * FROM iceberg_scan('{location}', snapshot_from_id = {head.snapshot_id})"
    return list(duck.execute(query).to_arrow_table().to_pylist())


# -- tables and namespaces -------------------------------------------------------------------------


def named(folder: Path, table: str, **options: Any) -> IcebergHarness:
    harness = IcebergHarness(folder / "lake", FIELDS, **options)
    harness.place.table = table
    return harness


@pytest.mark.parametrize(
    "table",
    [
        *(f"{name}.{name}" for name in [*PLAIN, 'a"b', "a?b", "a#b"]),
        *("shop. a", "shop.a ", "shop. "),
        "a.b.c",
        "Ünï.a b.UPPER.x`y",
    ],
)
def test_a_table_has_the_name_that_it_was_given(
    tmp_path: Path, table: str, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = named(tmp_path, table)
    filled(harness, ROWS)
    harness.opened(create=False).close()
    assert harness.rows_visible() == ROWS
    with closing(harness.catalog()) as catalog:
        assert catalog.list_tables(table.rpartition(".")[0]) == [tuple(table.split("."))]
    if '"' not in table:  # DuckDB takes it for a quote, in a path too
        assert read_by_duckdb(duck, harness) == ROWS


def test_tables_whose_names_differ_a_little_are_different_tables(tmp_path: Path) -> None:
    names = ["shop.a", "shop.A", "shop.a ", "Shop.a", "shop._", "shop.%", "shop.a.b", "s_op.a"]
    harness = named(tmp_path, "shop.orders")
    for number, name in enumerate(names):
        harness.place.table = name
        filled(harness, [{"id": number}])
    for number, name in enumerate(names):
        harness.place.table = name
        assert harness.rows_visible() == [{"id": number}], name


@pytest.mark.parametrize(
    ("table", "named_so"),
    [
        ("shop.a/b", "the name 'a/b' in table has '/'"),
        ("shop./etc", "the name '/etc' in table has '/'"),
        ("a/b.orders", "the name 'a/b' in table has '/'"),
        ("shop.a\0b", r"the name 'a.x00b' in table has '.x00'"),
        (f"shop.{'x' * 256}", "in table is longer than 255 bytes"),
        (f"shop.{'é' * 128}", "in table is longer than 255 bytes"),
        (f"{'x' * 128}.{'y' * 128}.orders", "in table is longer than 255 bytes"),
        ("shop..orders", "give namespace and name"),
        ("...", "give namespace and name"),
        ("shop.../../orders", "give namespace and name"),
        ("shop.\ud800", "unable to parse raw data as a unicode string"),
    ],
)
def test_a_name_that_makes_no_folder_of_its_own_is_refused_before_anything_is_written(
    tmp_path: Path, table: str, named_so: str
) -> None:
    harness = named(tmp_path, table)
    for call in (harness.opened, lambda: harness.new_sink().check_connection()):
        with pytest.raises(ConfigError, match=named_so):
            call()
    assert [*harness.folder.iterdir()] == []


@pytest.mark.parametrize("mark", ["?", "#"])
def test_a_mark_that_ends_the_path_of_a_url_is_refused_where_the_warehouse_is_one(
    tmp_path: Path, mark: str
) -> None:
    warehouse = f"file://{tmp_path}/lake/warehouse"
    harness = named(tmp_path, f"shop.a{mark}b", warehouse=warehouse)
    with pytest.raises(ConfigError, match=f"in table has '\\{mark}'") as caught:
        harness.opened()
    assert "name the table otherwise" in str(caught.value)
    assert [*harness.folder.iterdir()] == []
    harness.place.table = "shop.a b"
    filled(harness, ROWS)
    assert harness.rows_visible() == ROWS


@pytest.mark.parametrize("name", ["a/b", "x" * 256])
def test_a_table_that_another_engine_has_put_elsewhere_is_written_under_such_a_name(
    tmp_path: Path, name: str, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = named(tmp_path, f"shop.{name}")
    with pytest.raises(ConfigError, match="leave create out, if it exists or another engine"):
        harness.opened()
    with closing(harness.catalog()) as catalog:
        catalog.create_namespace("shop")
        schema = Schema(NestedField(1, "id", LongType()))
        catalog.create_table(harness.place.table, schema, location=f"{tmp_path}/lake/elsewhere")
    harness.options["create"] = False
    filled(harness, ROWS)
    assert harness.rows_visible() == ROWS == read_by_duckdb(duck, harness)


@pytest.mark.parametrize("table", [" shop.orders", "shop .orders", "shop. a.orders", "a. .orders"])
def test_a_namespace_with_a_blank_at_its_end_is_refused_and_without_it_taken(
    tmp_path: Path, table: str
) -> None:
    """A catalog in a database leaves the blank out, so it would be another namespace."""
    harness = named(tmp_path, table)
    for create in (True, False):
        with pytest.raises(ConfigError, match="begins or ends with a blank") as caught:
            harness.opened(create=create)
    assert "leave it out here too" in str(caught.value)
    assert [*harness.folder.iterdir()] == []
    harness.place.table = table.replace(" ", "") if ". ." not in table else "a.orders"
    filled(harness, ROWS)
    assert harness.rows_visible() == ROWS


# -- columns ---------------------------------------------------------------------------------------

COLUMNS = [
    *PLAIN, "a.b", ".", "..", "a..b", " ", " a", "a ", '"', "/", "a/b", "../../x", "?", "#", "a,b",
    "(x)", "day(id)", "²", "٣x", "ﬁ", "x" * 300, "_file", "_pos", "file_path", "element", "key",
    "value", "r102", "a_x2Eb", "id#2",
]  # fmt: skip


def with_column(name: str) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """Rows with a name outside and inside of a struct, a list and a map."""
    struct = pa.struct([("first", pa.int32()), (name, pa.string())])
    fields = [
        pa.field("id", pa.int64()),
        pa.field(name, pa.string()),
        pa.field("in_struct", pa.struct([(name, struct)])),
        pa.field("in_list", pa.list_(struct)),
        pa.field("in_map", pa.map_(pa.string(), struct)),
    ]
    inside = {"first": 7, name: "v"}
    full = {
        "id": 1,
        name: "v",
        "in_struct": {name: inside},
        "in_list": [inside, None, {"first": None, name: None}],
        "in_map": [("k", inside), ("n", None)],
    }
    empty: dict[str, Any] = {
        "id": 3,
        name: None,
        "in_struct": {name: None},
        "in_list": [],
        "in_map": [],
    }
    return pa.schema(fields), [full, full | {"id": 2, name: "w"}, empty]


def is_w(column: str) -> BooleanExpression:
    """A condition on a column, whose name no parser of conditions has to take."""
    return EqualTo(term=Reference(column), value=literal("w"))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_reads_back_by_its_name_outside_and_inside_of_others(
    tmp_path: Path, name: str, duck: duckdb.DuckDBPyConnection
) -> None:
    fields, rows = with_column(name)
    harness = IcebergHarness(tmp_path / "lake", fields)
    filled(harness, rows)
    assert harness.table().schema().as_arrow().names == fields.names
    assert harness.rows_visible() == rows
    assert read_by_duckdb(duck, harness) == rows
    found = harness.table().scan(row_filter=is_w(name)).to_arrow()
    assert found.column("id").to_pylist() == [2]


@pytest.mark.parametrize("name", ["a.b", "1st", "Ünï", "plain"])
def test_a_part_of_a_batch_and_fields_in_another_order_read_back_by_name(
    tmp_path: Path, name: str, duck: duckdb.DuckDBPyConnection
) -> None:
    fields, rows = with_column(name)
    harness = IcebergHarness(tmp_path / "lake", fields, partition_by=["bucket[2](id)"])
    harness.opened().close()
    turned = pa.struct([(name, pa.string()), ("first", pa.int32())])
    kinds = [
        pa.int64(), pa.string(), pa.struct([(name, turned)]), pa.list_(turned),
        pa.map_(pa.string(), turned),
    ]  # fmt: skip
    given = [*zip(fields.names, kinds, strict=True)]
    harness.fields = pa.schema(reversed(given))
    batch = pa.RecordBatch.from_pylist(rows, schema=harness.fields)
    commit(harness, batch.slice(1, 2))
    harness.fields = fields
    for found in (harness.rows_visible(), read_by_duckdb(duck, harness)):
        assert sorted(found, key=lambda row: row["id"]) == rows[1:]


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "day(id)"])
def test_a_table_is_partitioned_by_a_column_of_any_name(
    tmp_path: Path, name: str, duck: duckdb.DuckDBPyConnection
) -> None:
    fields = pa.schema([("id", pa.int64()), (name, pa.string())])
    rows = [{"id": number, name: value} for number, value in enumerate(["v", "w", None])]
    by = [name, f"truncate[1]({name})", f"bucket[4]({name})"]
    harness = IcebergHarness(tmp_path / "lake", fields, partition_by=by)
    filled(harness, rows)
    found = sorted(harness.rows_visible(), key=lambda row: row["id"])
    assert found == rows
    schema = harness.table().schema()
    parts = harness.table().spec().fields
    assert [schema.find_column_name(part.source_id) for part in parts] == [name] * 3
    found_w = harness.table().scan(row_filter=is_w(name)).to_arrow()
    assert found_w.column("id").to_pylist() == [1]
    if not any(mark.isalnum() and not mark.isascii() for mark in name):  # DuckDB dies of it
        assert sorted(read_by_duckdb(duck, harness), key=lambda row: row["id"]) == rows


TEXT = pa.string()


@pytest.mark.parametrize(
    ("fields", "named_so", "renamed"),
    [
        ({"": TEXT}, "column '' has an empty name", {"x": TEXT}),
        (
            {"s": pa.struct([("", TEXT)])},
            "column '' in 's' has an empty name",
            {"s": pa.struct([("x", TEXT)])},
        ),
        ({"a\0b": TEXT}, r"column 'a.x00b' has a name that readers in C cut", {"ab": TEXT}),
        (
            {"a.b": TEXT, "a_x2Eb": TEXT},
            "column 'a_x2Eb' has the name of column 'a.b' in data files, 'a_x2Eb'",
            {"a.b": TEXT, "a_b": TEXT},
        ),
        (
            {"_1": TEXT, "1": TEXT},
            "column '1' has the name of column '_1' in data files, '_1'",
            {"_1": TEXT, "2": TEXT},
        ),
        (
            {"l": pa.list_(pa.struct([("a b", TEXT), ("a_x20b", TEXT)]))},
            "column 'a_x20b' in 'element' in 'l' has the name of column 'a b' in 'element' in 'l'",
            {"l": pa.list_(pa.struct([("a b", TEXT), ("a_b", TEXT)]))},
        ),
        (
            {"a.b": TEXT, "a": pa.struct([("b", TEXT)])},
            "column 'b' in 'a' has the name of column 'a.b' in Iceberg",
            {"a.b": TEXT, "a": pa.struct([("c", TEXT)])},
        ),
        ({"ü": TEXT, "Ü": TEXT}, "column 'ü' appears twice", {"ü": TEXT, "U": TEXT}),
    ],
    ids=lambda given: "" if isinstance(given, str) else repr([*given]),
)
def test_columns_that_no_table_can_have_beside_each_other_are_refused_until_one_is_renamed(
    tmp_path: Path, fields: dict[str, Any], named_so: str, renamed: dict[str, Any]
) -> None:
    harness = IcebergHarness(tmp_path / "lake", pa.schema([*fields.items()]))
    with pytest.raises(ConfigError, match=named_so) as caught:
        harness.opened()
    assert "change the rows in the query" in caught.value.remedy
    assert not harness.place.tables.exists()
    harness.fields = pa.schema([*renamed.items()])
    harness.opened().close()


def rename(table: Any) -> None:
    with table.update_schema() as update:
        update.rename_column("a_x2Eb", "a_b")


def test_a_table_of_others_with_such_columns_is_refused_until_one_is_renamed(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    names = ["a.b", "a_x2Eb"]
    harness = IcebergHarness(tmp_path / "lake", pa.schema([(names[0], TEXT)]), create=False)
    with closing(harness.catalog()) as catalog:
        catalog.create_namespace("shop")
        columns = [NestedField(1 + at, name, StringType()) for at, name in enumerate(names)]
        catalog.create_table(harness.place.table, Schema(*columns))
    before = harness.contents()
    for call in (harness.opened, lambda: harness.new_sink().check_connection()):
        with pytest.raises(ConfigError, match=r"has the name of column 'a\.b' in data files"):
            call()
    assert harness.contents() == before
    change(harness, rename)
    filled(harness, [{"a.b": "v"}])
    assert harness.rows_visible() == [{"a.b": "v"}]
    assert read_by_duckdb(duck, harness) == [{"a.b": "v", "a_b": None}]


def test_a_column_is_not_added_beside_one_that_has_its_name_in_data_files(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path / "lake", pa.schema([("a_x2Eb", TEXT)]))
    harness.opened().close()
    harness.fields = pa.schema([("a_x2Eb", TEXT), ("a.b", TEXT)])
    with pytest.raises(ConfigError, match=r"column 'a\.b' has the name of column 'a_x2Eb'"):
        harness.opened(schema_change="add_columns")
    assert harness.table().schema().column_names == ["a_x2Eb"]
    harness.fields = pa.schema([("a_x2Eb", TEXT), ("a b", TEXT)])
    harness.opened(schema_change="add_columns").close()
    assert harness.table().schema().column_names == ["a_x2Eb", "a b"]


# -- partition fields ------------------------------------------------------------------------------

MOMENT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("partition_by", "field", "instead"),
    [
        (["day(at)"], r"day\(at\) .* 'at_day'", ["hour(at)"]),
        (["at_day", "day(at)"], "'at_day'", ["at_day", "hour(at)"]),
        (
            ["bucket[2](id)", "bucket[4](id)"],
            r"bucket\[2\]\(id\) .* 'id_bucket'",
            ["bucket[4](id)"],
        ),
        (
            ["truncate[2](id)", "truncate[4](id)"],
            r"truncate\[2\]\(id\) .* 'id_trunc'",
            ["truncate[2](id)", "id"],
        ),
        (["bucket[4](a.b)", "a_x2Eb_bucket"], r"\(a\.b\) .* 'a\.b_bucket'", ["bucket[4](a.b)"]),
    ],
    ids=str,
)
def test_a_partition_field_that_would_have_the_name_of_another_is_refused_before_a_table_is_created(
    tmp_path: Path, partition_by: list[str], field: str, instead: list[str]
) -> None:
    fields = pa.schema(
        [
            ("id", pa.int64()),
            ("at", MOMENT),
            ("at_day", pa.string()),
            ("a.b", pa.string()),
            ("a_x2Eb_bucket", pa.string()),
        ]
    )
    harness = IcebergHarness(tmp_path / "lake", fields, partition_by=partition_by)
    with pytest.raises(ConfigError, match=field) as caught:
        harness.opened()
    assert caught.value.remedy == (
        "choose another transform in partition_by, or rename the column."
    )
    with closing(harness.catalog()) as catalog:
        assert catalog.list_namespaces() == []
    row = dict.fromkeys(fields.names) | {"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    harness.options["partition_by"] = instead
    filled(harness, [row])
    assert harness.rows_visible() == [row]


def test_a_column_with_the_name_of_a_partition_field_is_renamed_and_the_table_is_created(
    tmp_path: Path,
) -> None:
    fields = [pa.field("at", MOMENT), pa.field("at_day", pa.string())]
    harness = IcebergHarness(tmp_path / "lake", pa.schema(fields), partition_by=["day(at)"])
    with pytest.raises(ConfigError, match="would have a name that another one or a column has"):
        harness.opened()
    harness.fields = pa.schema([fields[0], fields[1].with_name("day_of_at")])
    harness.opened().close()


# -- branches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "branch",
    [
        *(name for name in PLAIN if name != "main"), "a.b", "..", "a/b", " ", '"', "Main", "main ",
        "refs/heads/main", "a@b", "x" * 5000, "a\0b",
    ],
)  # fmt: skip
def test_a_branch_has_the_name_that_it_was_given(
    tmp_path: Path, branch: str, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS, branch=branch)
    filled(harness, ROWS)
    harness.opened(create=False).close()
    assert [*harness.table().metadata.refs] == [branch]
    assert harness.rows_of("main").num_rows == 0
    assert harness.rows_visible() == ROWS == read_by_duckdb(duck, harness)
