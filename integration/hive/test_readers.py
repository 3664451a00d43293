"""Hive's own reader and Spark's read what the sink has written to a table of Hive's own."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from harness.selection import representatives
from harness.spark_settings import changed
from harness.staged_sink_harness import commit
from integration.hive.sink_harness import HiveHarness
from twophase.errors import ConfigError, RejectedRowsError
from twophase.sinks.common.java import java_class

pytestmark = pytest.mark.part("hive")

TIME = pa.timestamp("us", "UTC")
DAY = datetime.date


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=datetime.UTC)  # type: ignore[arg-type, misc]


NINES = Decimal("9" * 28 + "." + "9" * 10)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.5, float("nan"), float("-inf"), -0.0]),
    "double": (pa.float64(), [0.1, float("nan"), float("inf"), -0.0, 1.7976931348623157e308]),
    "decimal1": (pa.decimal128(1, 0), [Decimal(9), Decimal(-9)]),
    "decimal9": (pa.decimal128(9, 9), [Decimal("0.000000001"), Decimal("-0.999999999")]),
    "decimal18": (pa.decimal128(18, 4), [Decimal("99999999999999.9999"), Decimal("-0.0001")]),
    "decimal38": (pa.decimal128(38, 10), [NINES, NINES.copy_negate(), Decimal("-0.0000000001")]),
    "text": (pa.string(), ["", "日本語 😀\n\t\0x", "x" * 70_000]),
    "bytes": (pa.binary(), [b"", b"\x00\xff"]),
    "day": (pa.date32(), [DAY(1, 1, 1), DAY(1500, 3, 1), DAY(1582, 10, 4), DAY(1582, 10, 15),
        DAY(1899, 12, 31), DAY(1969, 12, 31), DAY(9999, 12, 31)]),
    "time": (TIME, [at(1, 1, 2), at(1582, 10, 4, 23, 59, 59), at(1582, 10, 15), at(1677, 9, 20),
        at(1899, 12, 31, 23, 59, 59), at(1969, 12, 31, 23, 59, 59), at(1970, 1, 1, 0, 0, 0, 1),
        at(2026, 3, 29, 1, 30, 0, 123456), at(2262, 4, 12), at(9999, 12, 31, 23, 59, 59, 999999)]),
    "texts": (pa.list_(pa.string()), [["a", None, ""], []]),
    "lists": (pa.list_(pa.list_(pa.int32())), [[[1], None, []], []]),
    "structs": (pa.list_(pa.struct([("x", pa.decimal128(20, 3))])),
        [[{"x": Decimal("1.001")}, None, {"x": None}], []]),
    "struct": (pa.struct([("x", pa.int32()), ("y", pa.list_(pa.bool_()))]),
        [{"x": 1, "y": [True, None]}, {"x": None, "y": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], []]),
    "deep": (pa.map_(pa.int32(), pa.struct([("x", pa.list_(pa.binary()))])),
        [[(1, {"x": [b"a"]}), (2, None)]]),
}  # fmt: skip
PARQUET: dict[str, tuple[pa.DataType, list[Any]]] = {
    "fraction": (TIME, [at(1, 1, 2, 0, 0, 0, 1), at(1969, 12, 31, 23, 59, 59, 999999)]),
    "times": (pa.list_(TIME), [[at(2026, 3, 29, 1, 30, 0, 123456), None], []]),
    "inner": (pa.struct([("at", TIME), ("on", pa.map_(TIME, pa.date32())), ("Xy", pa.int8())]),
        [{"at": at(1969, 1, 1, 0, 0, 0, 1), "on": [(at(1900, 1, 1), DAY(1600, 1, 1))], "Xy": 1}]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_every_type_and_its_extremes_read_back_equal(hive_spark: SparkSession, kind: str) -> None:
    given = VALUES | (PARQUET if kind == "parquet" else {})
    fields = pa.schema([(name, of) for name, (of, _) in given.items()])
    rows = [
        {name: values[number] if number < len(values) else None
            for name, (_, values) in given.items()}
        for number in range(max(len(values) for _, values in given.values()))
    ]  # fmt: skip
    table = HiveHarness(hive_spark, fields)
    table.make(f"CREATE TABLE {{table}} ({{columns}}) STORED AS {kind}")
    sink = table.opened()
    commit(sink, table.write(sink, rows))
    # As text, with all digits: Python has no years before 1, where a mistake may lead.
    texts = [f"cast({name} AS STRING) AS {name}" for name in given]
    sent = hive_spark.createDataFrame(pa.Table.from_pylist(rows, fields)).selectExpr(*texts)
    expected = [row.asDict() for row in sent.collect()]
    for converts in ("true", "false"):
        with changed(hive_spark, {f"spark.sql.hive.convertMetastore{kind.title()}": converts}):
            found = [
                row.asDict() for row in hive_spark.table(table.name).selectExpr(*texts).collect()
            ]
        for name in given:
            assert [row[name] for row in found] == [row[name] for row in expected], (converts, name)


@pytest.mark.parametrize("using", representatives(["STORED AS PARQUET", "USING parquet"], set()))
def test_timestamps_are_stored_as_spark_stores_them(hive_spark: SparkSession, using: str) -> None:
    table = HiveHarness(hive_spark, pa.schema([("id", pa.int64()), ("at", TIME)]))
    table.make(f"CREATE TABLE {{table}} ({{columns}}) {using}")
    table.sql("INSERT INTO {table} VALUES (1, TIMESTAMP '2026-01-01 00:00:00')")
    [theirs] = [path for path in table.path.iterdir() if path.name.startswith("part-")]
    sink = table.opened()
    commit(sink, table.write(sink, [{"id": 2, "at": at(2026, 1, 1)}]))
    [ours] = [path for path in table.files() if path != theirs]
    stored = [pa.parquet.ParquetFile(path).schema.column(1) for path in (theirs, ours)]
    assert {column.physical_type for column in stored} == {"INT96"}


def test_times_without_a_zone_are_refused_until_only_spark_reads(hive_spark: SparkSession) -> None:
    local = pa.schema([("id", pa.int64()), ("in", pa.list_(pa.timestamp("us")))])
    table = HiveHarness(hive_spark, local)
    table.sql("CREATE TABLE {table} (id BIGINT, `in` ARRAY<TIMESTAMP>) STORED AS PARQUET")
    with pytest.raises(ConfigError, match=r"'in': the rows have list<.*timestamp.us.>, the table"):
        table.opened()
    way_on = HiveHarness(hive_spark, local, create=True)
    sink = way_on.opened()
    row = {"id": 1, "in": [datetime.datetime(2026, 3, 29, 2, 30, 0, 1), None]}
    commit(sink, way_on.write(sink, [row]))
    assert way_on.rows_visible() == [row]


def test_fields_that_hive_would_not_find_in_orc_are_refused(hive_spark: SparkSession) -> None:
    given = pa.schema([("id", pa.int64()), ("in", pa.list_(pa.struct([("Xy", pa.int8())])))])
    table = HiveHarness(hive_spark, given)
    table.sql("CREATE TABLE {table} (id BIGINT, `in` ARRAY<STRUCT<Xy: TINYINT>>) STORED AS ORC")
    with pytest.raises(ConfigError, match="column 'in' has a struct with the field 'Xy'") as caught:
        table.opened()
    assert "make it a parquet table" in str(caught.value)
    parquet = HiveHarness(hive_spark, given)
    parquet.sql(
        "CREATE TABLE {table} (id BIGINT, `in` ARRAY<STRUCT<Xy: TINYINT>>) STORED AS PARQUET"
    )
    parquet.opened()
    small = pa.schema([("id", pa.int64()), ("in", pa.list_(pa.struct([("xy", pa.int8())])))])
    without = HiveHarness(hive_spark, small)
    without.sql("CREATE TABLE {table} (id BIGINT, `in` ARRAY<STRUCT<xy: TINYINT>>) STORED AS ORC")
    without.opened()


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("parquet", DAY(1582, 10, 14), "does not exist in Hive's calendar"),
        ("orc", at(1582, 10, 5), "does not exist in Hive's calendar"),
        ("orc", at(1969, 12, 31, 23, 59, 59, 1), "has a fraction of a second and is before 1970"),
    ],
)
def test_a_value_that_a_reader_would_shift_is_refused(
    hive_spark: SparkSession, kind: str, value: datetime.date, why: str
) -> None:
    of = TIME if isinstance(value, datetime.datetime) else pa.date32()
    table = HiveHarness(hive_spark, pa.schema([("old", of)]))
    table.make(f"CREATE TABLE {{table}} ({{columns}}) STORED AS {kind}")
    sink = table.opened()
    with pytest.raises(RejectedRowsError, match=why):
        table.write(sink, [{"old": value}])


def test_timestamps_in_orc_need_a_jvm_in_utc(
    hive_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HiveHarness(hive_spark, pa.schema([("at", TIME)]), create=True, format="orc")
    zones = java_class(hive_spark, "java.util.TimeZone")
    former = zones.getDefault()
    zones.setDefault(zones.getTimeZone("America/New_York"))
    try:
        with pytest.raises(ConfigError, match="zone of this JVM is America/New_York"):
            table.opened()
        assert not hive_spark.catalog.tableExists(table.name)
        HiveHarness(hive_spark, table.fields, create=True, format="parquet").opened()
    finally:
        zones.setDefault(former)  # to that of a JVM that was started with -Duser.timezone=UTC
    table.opened()


@pytest.mark.proof
def test_both_readers_see_the_same_moments_in_another_zone_than_utc(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "integration.hive.zone_cases", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["as it should be"]), (
        ended.stderr[-5000:]
    )
