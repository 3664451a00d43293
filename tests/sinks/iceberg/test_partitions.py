"""Every partition transform and format version, read back by pyiceberg and DuckDB."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, PrimitiveType

from harness.iceberg_harness import IcebergHarness
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.errors import ConfigError
from twophase.sinks.iceberg.options import partition_field

FIELDS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("small", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("flag", pa.bool_()),
    ]
)
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1970, 1, 1),
    datetime(2026, 2, 28, 23, 30),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]
ROWS: list[dict[str, Any]] = [
    {
        "id": (-(2**63), -1, 0, 34, 2**63 - 1)[at],
        "small": (-(2**31), -7, 0, 34, 2**31 - 1)[at],
        "name": ("", "a/b=../c", "__HIVE_DEFAULT_PARTITION__", "北京🚀\x00\n", "x" * 300)[at],
        "bytes": (b"", b"\x00\xff", b"ab", b"a" * 300, b"\n")[at],
        "price": Decimal(("-9999999999.99", "-0.01", "0.00", "14.20", "9999999999.99")[at]),
        "day": moment.date(),
        "at": moment.replace(tzinfo=UTC),
        "local": moment,
        "flag": (True, False, None, True, False)[at],
    }
    for at, moment in enumerate(MOMENTS)
] + [dict.fromkeys(FIELDS.names)]

SPECS = [
    *(name for name in FIELDS.names),
    *(f"bucket[16]({name})" for name in FIELDS.names if name != "flag"),
    *(f"truncate[3]({name})" for name in ("id", "small", "name", "bytes", "price")),
    *(f"{unit}({name})" for name in ("day", "at", "local") for unit in ("year", "month", "day")),
    *(f"hour({name})" for name in ("at", "local")),
    "void(name)",
]


def written(harness: IcebergHarness, rows: list[dict[str, Any]] = ROWS) -> None:
    sink = harness.opened()
    piece = harness.write(sink, rows)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    sink.close()


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"] is None, row["id"] or 0))


@pytest.mark.parametrize("spec", SPECS)
def test_a_partition_has_the_value_that_iceberg_defines(
    tmp_path: Path, spec: str, duck: duckdb.DuckDBPyConnection
) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS, partition_by=[spec])
    written(harness)
    table = harness.table()
    assert by_id(harness.rows_visible()) == by_id(ROWS)
    column, transform = partition_field(spec)
    source = table.schema().find_field(column).field_type
    assert isinstance(source, PrimitiveType)
    expected = parse_transform(transform).transform(source)
    values = [None if row[column] is None else as_stored(row[column]) for row in ROWS]
    made = {repr(Record(wrapped(expected(value), source))) for value in values}
    assert {repr(task.file.partition) for task in table.scan().plan_files()} == made
    found = duck.execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}')")
    assert by_id(found.to_arrow_table().cast(FIELDS).to_pylist()) == by_id(ROWS)


def wrapped(value: Any, kind: PrimitiveType) -> Any:
    """The lowest numbers truncated, as Java has them: Python's do not overflow."""
    bits = {IntegerType(): 32, LongType(): 64}.get(kind)
    if bits is None or value is None:
        return value
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def as_stored(value: Any) -> Any:
    """What Iceberg's own transforms take."""
    if isinstance(value, datetime):
        gap = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (gap.days * 86_400 + gap.seconds) * 1_000_000 + gap.microseconds
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return value


@pytest.mark.parametrize("version", [1, 2])
def test_several_fields_of_one_column_divide_rows_once_each(
    tmp_path: Path, version: int, duck: duckdb.DuckDBPyConnection
) -> None:
    fields = ["day(at)", "bucket[4](name)", "bucket[2](id)", "truncate[2](name)"]
    harness = IcebergHarness(tmp_path / "lake", FIELDS, partition_by=fields, format_version=version)
    rows: list[dict[str, Any]] = [
        dict.fromkeys(FIELDS.names)
        | {
            "id": number,
            "name": f"n{number % 7}",
            "at": datetime(2026, 1, 1 + number % 3, tzinfo=UTC),
        }
        for number in range(200)
    ]
    written(harness, rows)
    table = harness.table()
    assert table.metadata.format_version == version
    partitions = [repr(task.file.partition) for task in table.scan().plan_files()]
    assert len(partitions) == len(set(partitions)) > 10
    assert by_id(harness.rows_visible()) == rows
    found = table.scan(row_filter="at >= '2026-01-02T00:00:00+00:00' and name = 'n3'").to_arrow()
    wanted = [row["id"] for row in rows if row["at"].day >= 2 and row["name"] == "n3"]
    assert sorted(found.column("id").to_pylist()) == wanted
    query = f"SELECT count(*), sum(id) FROM iceberg_scan('{table.metadata_location}')"
    assert duck.execute(query).fetchall() == [(200, sum(range(200)))]


@pytest.mark.parametrize(
    ("spec", "named", "instead"),
    [
        ("nothing", "made of no column", "name"),
        ("day(nothing)", "made of no column", "day(at)"),
        ("day(name)", "cannot be made of a column of type string", "truncate[1](name)"),
        ("bucket[4](flag)", "cannot be made of a column of type boolean", "identity(flag)"),
    ],
)
def test_a_partition_that_cannot_be_made_is_refused_before_a_table_is_created(
    tmp_path: Path, spec: str, named: str, instead: str
) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS, partition_by=[spec])
    with pytest.raises(ConfigError, match=named) as caught:
        harness.opened()
    assert "in partition_by" in caught.value.remedy
    with pytest.raises(ConfigError, match="There is no table"):
        harness.opened(create=False, partition_by=[])
    harness.opened(partition_by=[instead]).close()


def test_a_partition_by_a_floating_point_number_is_refused(tmp_path: Path) -> None:
    fields = pa.schema([("amount", pa.float64())])
    with pytest.raises(ConfigError, match=r"whose NaN and -0\.0"):
        IcebergHarness(tmp_path / "lake", fields, partition_by=["amount"]).opened()


def test_an_existing_table_has_to_have_the_partitions_that_are_named(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS, partition_by=["day(at)"])
    harness.opened().close()
    harness.opened(partition_by=["day(at)"]).close()
    harness.opened(partition_by=[]).close()
    with pytest.raises(ConfigError, match=r"by day\(at_day\), not hour\(at\)"):
        harness.opened(partition_by=["hour(at)"])
