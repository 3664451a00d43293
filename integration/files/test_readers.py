"""What the file sink has written reads back equal, from Spark and from pyarrow, in every format."""

from __future__ import annotations

import datetime
import decimal
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from harness import bounds
from harness.hostile_values import READABLE
from harness.staged_sink_harness import FileHarness, commit
from twophase.contract.outcome import Committed
from twophase.errors import RejectedRowsError
from twophase.testing.harness import FIRST_SUBTASK, Row, transaction_id

pytestmark = [pytest.mark.part("files"), pytest.mark.proof]

# How Spark has to be told to read what is written: in Python, the options of its reader.
READ: dict[str, dict[str, Any]] = {
    "parquet": {},
    "orc": {},
    "json": {},
    "csv": {
        "header": True,
        "multiLine": True,
        "escape": '"',
        "nullValue": "\u0001",
        "positiveInf": "inf",
        "negativeInf": "-inf",
        "nanValue": "nan",
    },
}
UTC = datetime.UTC
PLAIN: list[tuple[pa.Field, list[Any]]] = [
    (pa.field("id", pa.int64()), [-(2**63), 2**63 - 1, 0]),
    (pa.field("tiny", pa.int8()), [-128, 127, None]),
    (pa.field("small", pa.int16()), [-(2**15), 2**15 - 1, None]),
    (pa.field("int", pa.int32()), [-(2**31), 2**31 - 1, None]),
    (pa.field("bool", pa.bool_()), [True, False, None]),
    (pa.field("float", pa.float32()), [0.5, -(2.0**127), None]),
    (pa.field("double", pa.float64()), [0.1, 1.7976931348623157e308, None]),
    (pa.field("special", pa.float64()), [float("inf"), float("-inf"), -0.0]),
    (pa.field("nan", pa.float32()), [float("nan"), 0.0, None]),
    (pa.field("decimal", pa.decimal128(38, 10)),
        [decimal.Decimal("9" * 28 + "." + "9" * 10), decimal.Decimal("-0.0000000001"), None]),
    (pa.field("whole", pa.decimal128(20, 0)),
        [decimal.Decimal(10**20 - 1), decimal.Decimal(0), None]),
    (pa.field("text", pa.string()),
        ['plain "quoted" \'text\', with; commas', "line\nbreak\r\nand\ttab \\ \\n", ""]),
    (pa.field("more", pa.string()), ["日本語 😀 é e\u0301", "null", None]),
    (pa.field("date", pa.date32()),
        [datetime.date(1582, 10, 15), datetime.date(9999, 12, 31), None]),
    (
        pa.field("time", pa.timestamp("us", "UTC")),
        [datetime.datetime(2026, 3, 29, 1, 30, 0, 123456, UTC),
            datetime.datetime(2262, 4, 11, 23, 47, 16, 854775, UTC), None],
    ),
]  # fmt: skip
BEFORE_1970 = datetime.datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC)
WHOLE: tuple[pa.Field, list[Any]] = (
    pa.field("old", pa.timestamp("us", "UTC")),
    [BEFORE_1970, datetime.datetime(1700, 1, 1, tzinfo=UTC), None],
)
OLD_DATE: tuple[pa.Field, list[Any]] = (
    pa.field("old_date", pa.date32()),
    [datetime.date(1, 1, 1), None, None],
)
FRACTION: tuple[pa.Field, list[Any]] = (
    pa.field("old", pa.timestamp("us", "UTC")),
    [
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        datetime.datetime(1583, 1, 1, 0, 0, 0, 1, UTC),
        None,
    ],
)
LOCAL: tuple[pa.Field, list[Any]] = (
    pa.field("local", pa.timestamp("us")),
    [datetime.datetime(2026, 3, 29, 2, 30, 0, 1), datetime.datetime(1900, 1, 1), None],
)
NESTED: list[tuple[pa.Field, list[Any]]] = [
    (pa.field("bytes", pa.binary()), [b"\x00\xff", b"", None]),
    (pa.field("list", pa.list_(pa.string())), [["a", None, ""], [], None]),
    (pa.field("struct", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.bool_()))])),
        [{"x": 1, "y": [True, None]}, {"x": None, "y": None}, None]),
    (pa.field("map", pa.map_(pa.string(), pa.int64())), [[("a", 1), ("b", None)], [], None]),
]  # fmt: skip


def columns(kind: str) -> list[tuple[pa.Field, list[Any]]]:
    if kind == "orc":
        return [*PLAIN, WHOLE, *NESTED]
    return [*PLAIN, LOCAL, FRACTION, OLD_DATE, *([] if kind == "csv" else NESTED)]


def rows_of(given: list[tuple[pa.Field, list[Any]]]) -> list[Row]:
    return [{field.name: values[number] for field, values in given} for number in range(3)]


def read(spark: SparkSession, table: FileHarness, kind: str) -> DataFrame:
    return (
        spark.read.format(kind)
        .options(**READ[kind])
        .schema(from_arrow_schema(table.fields))
        .load(str(table.path))
    )


@pytest.mark.parametrize("kind", READ)
def test_every_type_reads_back_equal_from_spark(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    given = columns(kind)
    table = FileHarness(tmp_path / "orders", pa.schema([field for field, _ in given]), format=kind)
    sink = table.opened()
    rows = rows_of(given)
    commit(sink, table.write(sink, rows))
    expected = spark.createDataFrame(pa.Table.from_pylist(rows, table.fields)).collect()
    found = read(spark, table, kind).collect()
    for field, _ in given:
        got = [repr(row[field.name]) for row in found]
        assert got == [repr(row[field.name]) for row in expected], field.name


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_every_type_reads_back_equal_from_pyarrow(tmp_path: Path, kind: str) -> None:
    given = columns(kind)
    table = FileHarness(tmp_path / "orders", pa.schema([field for field, _ in given]), format=kind)
    sink = table.opened()
    rows = rows_of(given)
    commit(sink, table.write(sink, rows))
    expected = pa.Table.from_pylist(rows, table.fields).to_pylist()
    assert repr(table.rows_visible()) == repr(expected)  # NaN is not equal to itself


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_condition_finds_in_the_files_what_spark_finds_in_memory(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = FileHarness(tmp_path / "orders", bounds.FIELDS, format=kind)
    sink = table.opened()
    for checkpoint, rows in enumerate(bounds.files()):
        commit(sink, table.write(sink, rows, checkpoint))
    missed = bounds.missed_by_spark(read(spark, table, kind))
    # Where Spark goes by ORC's bounds, or by a dictionary in parquet, it tells -0.0 from 0.0.
    assert [condition for condition in missed if not condition.endswith(bounds.ZEROS)] == []


def test_every_readable_partition_value_reads_back_equal_from_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    fields = pa.schema([("id", pa.int64()), ("part", pa.string())])
    table = FileHarness(tmp_path / "orders", fields, partition_by=["part"])
    sink = table.opened()
    rows = [{"id": number, "part": value} for number, value in enumerate(READABLE)]
    commit(sink, table.write(sink, rows))
    found = [row.asDict() for row in read(spark, table, "parquet").orderBy("id").collect()]
    assert found == rows


def test_staged_files_are_invisible_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = FileHarness(tmp_path / "orders")
    sink = table.opened()
    commit(sink, table.write(sink, [{"id": 1, "name": "committed", "amount": 0.0}]))
    table.write(sink, [{"id": 2, "name": "staged", "amount": 0.0}], 1)
    assert [row.id for row in read(spark, table, "parquet").collect()] == [1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (datetime.date(1582, 10, 14), "before 1582-10-15"),
        (
            BEFORE_1970 + datetime.timedelta(microseconds=1),
            "has a fraction of a second and is before 1970",
        ),
        (
            datetime.datetime(2262, 4, 11, 23, 47, 16, 854776, UTC),
            "outside the years that fit into nanoseconds",
        ),
        (datetime.datetime(1600, 1, 1, tzinfo=UTC), "outside the years that fit into nanoseconds"),
    ],
)
def test_what_readers_of_orc_could_not_read_is_refused(
    tmp_path: Path, value: datetime.date, why: str
) -> None:
    kind = pa.timestamp("us", "UTC") if isinstance(value, datetime.datetime) else pa.date32()
    table = FileHarness(tmp_path / "orders", pa.schema([("old", kind)]), format="orc")
    sink = table.opened()
    with pytest.raises(RejectedRowsError, match=why):
        table.write(sink, [{"old": value}])
    assert table.files() == []


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_bytes_that_are_no_text_are_decoded_as_the_refusal_says(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    frame = spark.sql("SELECT 1L AS id, CAST(X'41E4' AS STRING) AS value")
    fields = pa.schema([("id", pa.int64()), ("value", pa.string())])
    table = FileHarness(tmp_path / "orders", fields, format=kind)
    sink = table.opened()
    latin = pa.array([b"A\xe4"]).view(pa.string())
    writer = sink.writers()(transaction_id(), FIRST_SUBTASK)
    writer.write(pa.RecordBatch.from_arrays([pa.array([1]), latin], schema=fields))
    with pytest.raises(RejectedRowsError, match="value in row 1 of 1 is not text") as caught:
        writer.pre_commit()
    [advised] = re.findall(r"with (decode\(.*\)), or", caught.value.remedy)
    mended = frame.selectExpr("id", f"{advised} AS value").collect()
    piece = table.write(sink, [row.asDict() for row in mended], checkpoint=1)
    assert commit(sink, piece) == [Committed()]
    assert table.rows_visible() == [{"id": 1, "value": "Aä"}]
