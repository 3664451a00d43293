"""Values and partitions that are easily lost, read back by pypaimon; what is refused by name."""

from __future__ import annotations

import random
import string
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from harness.hostile_values import VALUES
from harness.paimon_harness import PaimonHarness
from tests.sinks.paimon import others
from tests.sinks.paimon.others import committed
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError, RejectedRowsError
from twophase.sinks.paimon.layout import PARTITIONS
from twophase.testing.harness import FIRST_SUBTASK, Row, transaction_id

TEXTS = pa.schema([("id", pa.int64()), ("part", pa.string())])
TOO_LONG = ["x" * 300, "é" * 150, "%" * 90]


def written(harness: PaimonHarness, rows: list[Row]) -> None:
    sink = harness.opened()
    assert committed(sink, harness.write(sink, rows)) == [Committed()]
    sink.close()


def by_id(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["id"])


def test_every_hostile_text_is_a_partition_of_its_own_that_reads_back_unchanged(
    tmp_path: Path,
) -> None:
    harness = PaimonHarness(tmp_path / "lake", TEXTS, partition_by=["part"])
    values = [value for value in VALUES if value not in TOO_LONG]
    rows = [{"id": number, "part": value} for number, value in enumerate(values)]
    written(harness, rows)
    assert by_id(harness.rows_visible()) == rows
    names = {path.parts[-3] for path in harness.location.rglob("bucket-0/*.parquet")}
    assert all(name.startswith("part=") for name in names)
    outside = [path for path in harness.folder.rglob("*.parquet") if "orders" not in path.parts]
    assert outside == []


@pytest.mark.parametrize("value", TOO_LONG)
def test_a_partition_whose_folder_would_have_too_long_a_name_is_refused_by_row(
    tmp_path: Path, value: str
) -> None:
    harness = PaimonHarness(tmp_path / "lake", TEXTS, partition_by=["part"])
    sink = harness.opened()
    with pytest.raises(RejectedRowsError, match="too long for a folder"):
        harness.write(sink, [{"id": 1, "part": value}])


def test_a_table_is_partitioned_by_each_type_that_can_be(tmp_path: Path) -> None:
    kinds = {
        "BOOLEAN": (pa.bool_(), True),
        "TINYINT": (pa.int8(), -128),
        "SMALLINT": (pa.int16(), -32768),
        "INT": (pa.int32(), 2**31 - 1),
        "BIGINT": (pa.int64(), -(2**63)),
        "STRING": (pa.string(), "a/b=../c"),
        "DATE": (pa.date32(), date(1, 1, 1)),
    }
    assert {*kinds} == {*PARTITIONS}
    fields = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in kinds.items())])
    harness = PaimonHarness(tmp_path / "lake", fields, partition_by=[*kinds])
    rows: list[Row] = [
        {"id": 0, **{name: value for name, (_, value) in kinds.items()}},
        {"id": 1, **dict.fromkeys(kinds)},
    ]
    written(harness, rows)
    assert by_id(harness.rows_visible()) == rows


@pytest.mark.parametrize(
    "kind",
    [pa.float64(), pa.decimal128(9, 2), pa.timestamp("us"), pa.binary(), pa.list_(pa.int8())],
)
def test_other_types_cannot_be_partitions(tmp_path: Path, kind: pa.DataType) -> None:
    fields = pa.schema([("id", pa.int64()), ("part", kind)])
    harness = PaimonHarness(tmp_path / "lake", fields, partition_by=["part"])
    with pytest.raises(ConfigError, match="partition column 'part' is") as caught:
        harness.opened()
    assert caught.value.remedy == "choose other columns in partition_by."
    assert not harness.location.exists()
    harness.opened(partition_by=["id"]).close()


@pytest.mark.parametrize("statistics", ["none", "full"])
def test_values_of_every_type_read_back_unchanged(tmp_path: Path, statistics: str) -> None:
    moments = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "id": (pa.int64(), [0, 1, 2]),
        "flag": (pa.bool_(), [True, False, None]),
        "tiny": (pa.int8(), [-128, 127, None]),
        "small": (pa.int16(), [-32768, 32767, None]),
        "int": (pa.int32(), [-(2**31), 2**31 - 1, None]),
        "float": (pa.float32(), [-0.0, 1.5, None]),
        "double": (pa.float64(), [5e-324, 1.7976931348623157e308, None]),
        "price": (pa.decimal128(38, 18), [Decimal("-1.000000000000000001"), Decimal(10), None]),
        "text": (pa.string(), ["", "北京🚀\x00\n" * 999, None]),
        "bytes": (pa.binary(), [b"", b"\x00\xff" * 999, None]),
        "day": (pa.date32(), [moment.date() for moment in moments] + [None]),
        "at": (pa.timestamp("us", "UTC"), [m.replace(tzinfo=UTC) for m in moments] + [None]),
        "local": (pa.timestamp("us"), [*moments, None]),
        "list": (pa.list_(pa.int64()), [[], [1, None], None]),
        "row": (
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            [{"a": 1, "b": None}] * 2 + [None],
        ),
        "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)], None]),
        "deep": (
            pa.list_(pa.struct([("at", pa.timestamp("us", "UTC"))])),
            [[{"at": moments[0].replace(tzinfo=UTC)}], [None], None],
        ),
    }
    fields = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    harness = PaimonHarness(tmp_path / "lake", fields)
    others.make_table(harness, options={"metadata.stats-mode": statistics})
    rows = [{name: values[at] for name, (_, values) in columns.items()} for at in range(3)]
    written(harness, rows)
    assert by_id(harness.rows_visible()) == rows


def test_a_filter_finds_rows_beside_values_that_have_no_bounds(tmp_path: Path) -> None:
    long = "".join(random.Random(1).choices(string.ascii_letters, k=20_000))
    fields = pa.schema([("id", pa.int64()), ("text", pa.string()), ("number", pa.float64())])
    harness = PaimonHarness(tmp_path / "lake", fields)
    others.make_table(harness, options={"metadata.stats-mode": "full"})
    rows = [{"id": 1, "text": long, "number": float("nan")}, {"id": 2, "text": "b", "number": 7.0}]
    written(harness, rows)
    builder = harness.table().new_read_builder()
    for column, value, found in (("text", long, 1), ("text", "b", 2), ("number", 7.0, 2)):
        predicate = builder.new_predicate_builder().equal(column, value)
        read = harness.table().new_read_builder().with_filter(predicate)
        table = read.new_read().to_arrow(read.new_scan().plan().splits())
        assert table.column("id").to_pylist() == [found]
    manifests = [path.stat().st_size for path in (harness.location / "manifest").iterdir()]
    assert max(manifests) < len(long) / 4


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        (None, "ZSTD"), ("ZSTD", "ZSTD"), ("snappy", "SNAPPY"), ("Lz4", "LZ4"), ("gzip", "GZIP"),
        ("brotli", "BROTLI"), ("none", "UNCOMPRESSED"), ("uncompressed", "UNCOMPRESSED"),
    ],
)  # fmt: skip
def test_a_file_is_compressed_as_the_table_says(
    tmp_path: Path, codec: str | None, stored: str
) -> None:
    harness = PaimonHarness(tmp_path / "lake", TEXTS)
    others.make_table(harness, options={"file.compression": codec} if codec else {})
    written(harness, [{"id": 1, "part": "a"}])
    [path] = harness.location.rglob("bucket-0/*.parquet")
    assert pq.read_metadata(path).row_group(0).column(0).compression == stored
    assert harness.rows_visible() == [{"id": 1, "part": "a"}]


@pytest.mark.parametrize(
    ("kind", "instead", "value", "field"),
    [
        ("TIMESTAMP(3)", "TIMESTAMP(6)", datetime(2026, 1, 1), pa.timestamp("us")),
        ("CHAR(5)", "STRING", "abc", pa.string()),
        ("VARCHAR(5)", "STRING", "abc", pa.string()),
        ("VARBINARY(5)", "BYTES", b"abc", pa.binary()),
    ],
)
def test_a_column_of_a_size_is_altered_as_the_refusal_says(
    tmp_path: Path, kind: str, instead: str, value: Any, field: pa.DataType
) -> None:
    harness = PaimonHarness(tmp_path / "lake", pa.schema([("id", pa.int64()), ("v", field)]))
    others.make_table(harness)
    others.alter(SchemaChange.update_column_type("v", AtomicType(kind)))(harness)
    with pytest.raises(ConfigError, match="no rows fit") as caught:
        harness.opened()
    assert f"alter it to {instead}." in str(caught.value)
    others.alter(SchemaChange.update_column_type("v", AtomicType(instead)))(harness)
    written(harness, [{"id": 1, "v": value}])
    assert harness.rows_visible() == [{"id": 1, "v": value}]


@pytest.mark.parametrize("kind", ["TIMESTAMP(7)", "TIMESTAMP_LTZ(9)"])
def test_a_column_of_nanoseconds_is_not_to_be_altered_as_that_would_cut_what_it_has(
    tmp_path: Path, kind: str
) -> None:
    zone = "UTC" if "LTZ" in kind else None
    fields = pa.schema([("id", pa.int64()), ("v", pa.timestamp("us", zone))])
    harness = PaimonHarness(tmp_path / "lake", fields)
    others.make_table(harness)
    others.alter(SchemaChange.update_column_type("v", AtomicType(kind)))(harness)
    with pytest.raises(ConfigError, match=r"which holds more than timestamp.*; name another table"):
        harness.opened()


def test_a_compression_that_cannot_be_written_is_refused_until_the_table_has_another(
    tmp_path: Path,
) -> None:
    harness = PaimonHarness(tmp_path / "lake", TEXTS)
    others.make_table(harness, options={"file.compression": "lzo"})
    with pytest.raises(ConfigError, match=r"file\.compression is lzo, not one of zstd, ") as caught:
        harness.opened()
    assert "change the table" in caught.value.remedy
    others.set_in_schema(harness, {"file.compression": "gzip"})
    written(harness, [{"id": 1, "part": "a"}])


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")])
def test_a_year_beyond_9999_is_refused_by_row(tmp_path: Path, kind: pa.DataType) -> None:
    fields = pa.schema([("id", pa.int64()), ("at", kind)])
    harness = PaimonHarness(tmp_path / "lake", fields)
    writer_of = harness.opened().writers()
    unit = 1 if pa.types.is_date32(kind) else 86_400_000_000
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    days = pa.array([0, 3_000_000 * unit], number).cast(kind)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), days], schema=fields)
    writer = writer_of(transaction_id(), FIRST_SUBTASK)
    with pytest.raises(RejectedRowsError, match=r"at = .* in row 2 of 2"):
        writer.write(batch)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    fields = pa.schema([("id", pa.int64()), ("name", pa.string())])
    harness = PaimonHarness(tmp_path / "lake", fields)
    names = pa.array([b"\xff"], pa.binary()).view(pa.string())
    writer = harness.opened().writers()(transaction_id(), FIRST_SUBTASK)
    with pytest.raises(RejectedRowsError, match="name"):
        writer.write(pa.RecordBatch.from_arrays([pa.array([1]), names], schema=fields))


def test_a_null_in_a_required_column_is_refused_by_row(tmp_path: Path) -> None:
    harness = PaimonHarness(tmp_path / "lake", others.FIELDS)
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), *[*others.FIELDS][1:]])
    others.make_table(harness, fields=fields)
    sink = harness.opened()
    with pytest.raises(RejectedRowsError, match=r"id is null in row 2 .*requires a value"):
        harness.write(sink, [{"id": 1}, {"id": None}])
    assert committed(sink, harness.write(sink, [{"id": 1}], 1)) == [Committed()]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a primary key": ({"primary_keys": ["id"]}, "it has a primary key \\(id\\)"),
    "buckets": ({"options": {"bucket": "4", "bucket-key": "id"}}, "bucket is 4, not -1"),
    "another format": ({"options": {"file.format": "orc"}}, "file.format is orc, not parquet"),
    "row tracking": ({"options": {"row-tracking.enabled": "true"}}, "row-tracking.enabled is true"),
    "files elsewhere": (
        {"options": {"data-file.external-paths": "file:///elsewhere"}},
        "data-file.external-paths is set",
    ),
    "a folder of files": (
        {"options": {"data-file.path-directory": "data"}},
        "data-file.path-directory is set",
    ),
    "Iceberg's metadata": (
        {"options": {"metadata.iceberg.storage": "table-location"}},
        "metadata.iceberg.storage is table-location",
    ),
    "other partitions": ({"partition_keys": ["name"]}, "it is partitioned by name, not id"),
}


SET_BY_OTHERS = {
    "manifest.format": "is orc",
    "branch": "is audit",
    "type": "is object-table",
    "data-evolution.enabled": "is true",
    "changelog-producer": "is input",
    "query-auth.enabled": "is true",
    "index-file-in-data-file-dir": "is true",
    "variant.shreddingSchema": "is set",
    "blob-field": "is set",
    "vector-field": "is set",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_cannot_be_written_is_refused_by_name(tmp_path: Path, case: str) -> None:
    given, named = REFUSED[case]
    harness = PaimonHarness(tmp_path / "lake", others.FIELDS)
    others.make_table(harness, **given)
    before = harness.contents()
    options: dict[str, Any] = {"partition_by": ["id"]} if "partitions" in case else {}
    for call in (lambda: harness.opened(**options), harness.new_sink(**options).check_connection):
        with pytest.raises(ConfigError, match=f"cannot be written: .*{named}"):
            call()
    assert harness.contents() == before


@pytest.mark.parametrize("option", SET_BY_OTHERS)
def test_a_table_with_an_option_of_another_engine_is_refused_by_name(
    tmp_path: Path, option: str
) -> None:
    said = SET_BY_OTHERS[option]
    harness = PaimonHarness(tmp_path / "lake", others.FIELDS)
    others.make_table(harness)
    others.set_in_schema(harness, {option: said.rpartition(" ")[2]})
    before = harness.contents()
    for call in (harness.opened, harness.new_sink().check_connection):
        with pytest.raises(ConfigError, match=f"cannot be written: .*{option} {said}"):
            call()
    assert harness.contents() == before


def test_a_table_that_becomes_one_that_cannot_be_written_declines_the_next_attempt(
    tmp_path: Path,
) -> None:
    harness = PaimonHarness(tmp_path / "lake", others.FIELDS)
    sink = harness.opened()
    others.alter(SchemaChange.set_option("file.format", "orc"))(harness)
    with pytest.raises(ConfigError, match=r"file\.format is orc") as caught:
        sink.writers()
    assert caught.value.remedy == "change the table, or name another."
    harness.opened(table="shop.others").close()
    others.alter(SchemaChange.set_option("file.format", "parquet"))(harness)
    assert committed(sink, harness.write(sink, others.rows(1))) == [Committed()]


@pytest.mark.parametrize("is_altered", [False, True], ids=["the rows change", "the table changes"])
def test_rows_that_do_not_fit_are_written_once_they_or_the_table_are_changed(
    tmp_path: Path, is_altered: bool
) -> None:
    narrow = pa.schema([("id", pa.int32())])
    harness = PaimonHarness(tmp_path / "lake", pa.schema([("id", pa.int64())]))
    others.make_table(harness, fields=narrow)
    with pytest.raises(ConfigError, match="column 'id': int64 does not fit INT") as caught:
        harness.opened()
    assert "change the rows in the query" in caught.value.remedy
    if is_altered:
        others.alter(SchemaChange.update_column_type("id", AtomicType("BIGINT")))(harness)
    else:
        harness.fields = narrow
    written(harness, [{"id": 7}])
    assert harness.rows_visible() == [{"id": 7}]
