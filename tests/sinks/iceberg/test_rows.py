"""Values and columns: stored as they are, or refused by name before anything is visible."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from harness.hostile_values import VALUES
from harness.iceberg_harness import IcebergHarness
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError, RejectedRowsError
from twophase.ids import Subtask
from twophase.testing.harness import transaction_id


def commit(harness: IcebergHarness, batch: pa.RecordBatch) -> None:
    sink = harness.opened()
    writer = sink.writers()(transaction_id(), Subtask(0, 0))
    writer.write(batch)
    piece = writer.pre_commit()
    assert piece is not None
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    sink.close()


def refused(harness: IcebergHarness, batch: pa.RecordBatch, named: str) -> None:
    sink = harness.opened()
    writer = sink.writers()(transaction_id(), Subtask(0, 0))
    with pytest.raises(RejectedRowsError, match=named):
        writer.write(batch)
    writer.abort()
    assert sink.in_doubt() == []
    sink.close()
    assert harness.rows_visible() == []


@pytest.mark.parametrize("partition_by", [[], ["v"], ["truncate[2](v)"], ["bucket[8](v)"]], ids=str)
def test_every_text_reads_back_as_it_was(
    tmp_path: Path, partition_by: list[str], duck: duckdb.DuckDBPyConnection
) -> None:
    fields = pa.schema([("id", pa.int64()), ("v", pa.string()), ("b", pa.binary())])
    harness = IcebergHarness(tmp_path / "lake", fields, partition_by=partition_by)
    values = [*VALUES, "\U0010ffff" * 20, "\ud7ff\U0010ffff" * 9, "a" * 100_000]
    rows: list[dict[str, Any]] = [
        {"id": number, "v": value, "b": None if value is None else value.encode()}
        for number, value in enumerate(values)
    ]
    commit(harness, pa.RecordBatch.from_pylist(rows, schema=fields))
    assert sorted(harness.rows_visible(), key=lambda row: row["id"]) == rows
    query = f"SELECT * FROM iceberg_scan('{harness.table().metadata_location}') ORDER BY id"
    assert duck.execute(query).to_arrow_table().cast(fields).to_pylist() == rows
    for row in rows[:: len(rows) // 20]:
        wanted = "v is null" if row["v"] is None else f"id = {row['id']}"
        assert harness.table().scan(row_filter=wanted).to_arrow().num_rows == 1


NESTED = pa.schema(
    [
        pa.field("id", pa.int8()),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("pairs", pa.map_(pa.string(), pa.list_(pa.int32()))),
        pa.field(
            "point", pa.struct([pa.field("x", pa.float32()), pa.field("at", pa.timestamp("us"))])
        ),
        pa.field("rows", pa.list_(pa.struct([pa.field("a", pa.decimal128(38, 18))]))),
        pa.field("odd name.of,a`column", pa.string()),
        pa.field("Ünï", pa.bool_()),
        pa.field("1st", pa.int16()),
    ]
)
FULL: dict[str, Any] = {
    "id": 1,
    "texts": ["", None, "北京"],
    "pairs": [("k", [1, None]), ("", [])],
    "point": {"x": 0.5, "at": datetime(2026, 1, 1)},
    "rows": [{"a": Decimal("1.000000000000000001")}, None],
    "odd name.of,a`column": "v",
    "Ünï": True,
    "1st": -1,
}


def test_nested_values_and_odd_names_read_back(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = IcebergHarness(tmp_path / "lake", NESTED)
    rows = [FULL, dict.fromkeys(NESTED.names), FULL | {"id": 2, "texts": [], "pairs": []}]
    commit(harness, pa.RecordBatch.from_pylist(rows, schema=NESTED))
    # pyiceberg reads a list of structs that is null as an empty one
    assert harness.rows_visible() == [rows[0], rows[1] | {"rows": []}, rows[2]]
    query = f"SELECT * FROM iceberg_scan('{harness.table().metadata_location}')"
    assert duck.execute(query).to_arrow_table().to_pylist() == rows


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [float("nan"), float("inf"), -0.0, None]),
        (pa.float32(), [float("nan"), float("-inf"), -0.0, 3.4e38]),
        (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10)]),
        (pa.timestamp("us"), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(-(10**38) + 1)]),
        (pa.decimal128(18, 18), [Decimal("0.999999999999999999"), Decimal("-1E-18")]),
        (pa.binary(), [b"\xff" * 40, b"", b"\x00"]),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
def test_values_at_the_limits_read_back(tmp_path: Path, kind: pa.DataType, values: Any) -> None:
    fields = pa.schema([("v", kind)])
    harness = IcebergHarness(tmp_path / "lake", fields)
    commit(harness, pa.RecordBatch.from_arrays([pa.array(values, kind)], ["v"]))
    assert [*map(repr, (row["v"] for row in harness.rows_visible()))] == [
        *map(repr, pa.array(values, kind).to_pylist())
    ]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.list_(pa.string()), pa.struct([("t", pa.string())])],
    ids=str,
)
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    fields = pa.schema([("v", kind)])
    text = pa.array([b"ok", b"\xff\xfe"]).view(pa.string())
    if pa.types.is_list(kind):
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), text)
    elif pa.types.is_struct(kind):
        column = pa.StructArray.from_arrays([text], ["t"])
    else:
        column = text
    harness = IcebergHarness(tmp_path / "lake", fields)
    refused(harness, pa.RecordBatch.from_arrays([column], ["v"]), "v in row 2 of 2 is not text")


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pa.date32(), 2932897),
        (pa.date32(), -719163),
        (pa.timestamp("us"), 253402300800 * 10**6),
        (pa.timestamp("us", "UTC"), -62135596800 * 10**6 - 1),
    ],
    ids=str,
)
def test_a_year_that_no_reader_in_python_has_is_refused(
    tmp_path: Path, kind: pa.DataType, number: int
) -> None:
    stored = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    column = pa.array([None, number], stored).view(kind)
    harness = IcebergHarness(tmp_path / "lake", pa.schema([("v", kind)]))
    refused(harness, pa.RecordBatch.from_arrays([column], ["v"]), "keeps the years 1 to 9999")


def test_a_null_in_a_required_column_is_refused_by_row(tmp_path: Path) -> None:
    fields = pa.schema([("id", pa.int64())])
    harness = IcebergHarness(tmp_path / "lake", fields)
    harness.opened().close()
    with harness.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", required=True)
    batch = pa.RecordBatch.from_pydict({"id": [1, None]}, schema=fields)
    refused(harness, batch, "id is null in row 2")


def test_rows_may_lack_columns_and_have_narrower_types(tmp_path: Path) -> None:
    wide = pa.schema(
        [("a", pa.int64()), ("b", pa.float64()), ("c", pa.decimal128(20, 2)), ("d", pa.string())]
    )
    harness = IcebergHarness(tmp_path / "lake", wide)
    harness.opened().close()
    narrow = pa.schema([("c", pa.decimal128(5, 2)), ("b", pa.float32()), ("a", pa.int8())])
    harness.fields = narrow
    rows = {"c": [Decimal("1.25")], "b": [0.5], "a": [7]}
    commit(harness, pa.RecordBatch.from_pydict(rows, schema=narrow))
    found = harness.table().scan().to_arrow().to_pylist()
    assert found == [{"a": 7, "b": 0.5, "c": Decimal("1.25"), "d": None}]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (pa.schema([("t", pa.time64("us"))]), "column 't': time64.us. is not supported"),
        (pa.schema([("t", pa.timestamp("ns"))]), "column 't': timestamp.ns. is not supported"),
        (pa.schema([("u", pa.uint32())]), "column 'u': uint32 is not supported"),
        (pa.schema([("s", pa.struct([]))]), "a struct without fields"),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), "column 'a' appears twice"),
    ],
    ids=lambda given: "" if isinstance(given, str) else str(given.names),
)
def test_a_type_that_would_not_read_back_is_refused_before_a_table_is_created(
    tmp_path: Path, fields: pa.Schema, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        IcebergHarness(tmp_path / "lake", fields).opened()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (pa.schema([("id", pa.string())]), "column 'id': string does not fit long"),
        (pa.schema([("id", pa.float64())]), "column 'id': double does not fit long"),
        (pa.schema([("id", pa.int64()), ("x", pa.int64())]), "column 'x' is not in the table"),
        (pa.schema([("ID", pa.int64())]), "column 'ID' is not in the table"),
    ],
    ids=lambda given: "" if isinstance(given, str) else str(given.names),
)
def test_rows_that_do_not_fit_the_table_are_refused(
    tmp_path: Path, fields: pa.Schema, named: str
) -> None:
    harness = IcebergHarness(tmp_path / "lake", pa.schema([("id", pa.int64())]))
    harness.opened().close()
    harness.fields = fields
    with pytest.raises(ConfigError, match=named):
        harness.opened()


@pytest.mark.parametrize("is_altered", [False, True], ids=["the rows change", "the table changes"])
def test_rows_that_do_not_fit_are_written_once_they_or_the_table_are_changed(
    tmp_path: Path, is_altered: bool
) -> None:
    fields = pa.schema([("id", pa.int64())])
    harness = IcebergHarness(tmp_path / "lake", fields)
    harness.opened().close()
    harness.fields = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    with pytest.raises(ConfigError, match="column 'x' is not in the table") as caught:
        harness.opened()
    assert "change the rows in the query" in caught.value.remedy
    if is_altered:
        with harness.table().update_schema() as update:
            update.add_column("x", LongType())
    else:
        harness.fields = fields
    row = dict.fromkeys(harness.fields.names, 7)
    commit(harness, pa.RecordBatch.from_pylist([row], schema=harness.fields))
    assert harness.rows_visible() == [row]
