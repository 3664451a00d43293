"""Columns and places: which rows a Delta table takes, where a table may be, and what is
refused before any write.
"""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from harness import bounds
from harness.spark_settings import changed
from integration.delta.sink_harness import COLUMNS, DeltaHarness, append_twice, commit
from twophase.contract.outcome import Committed
from twophase.contract.sink import SinkContext
from twophase.errors import ConfigError, PreflightError, TwoPhaseError
from twophase.ids import Attempt
from twophase.sinks.delta import jvm
from twophase.sinks.delta.sink import DeltaSink, OpenDeltaSink
from twophase.spark_versions import to_arrow_schema
from twophase.testing.harness import JOB, SINK, Row, fresh_name, transaction_id

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

# -- columns ---------------------------------------------------------------------------------------


def test_a_condition_finds_in_the_files_what_spark_finds_in_memory(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", columns="", create=True)
    table.fields = bounds.FIELDS
    sink = table.opened()
    for checkpoint, rows in enumerate(bounds.files()):
        commit(sink, *sink.pre_commit(table.frame(rows), transaction_id(checkpoint)))
    assert bounds.missed_by_spark(table.sql("SELECT * FROM {table}")) == {}


def test_all_types_arrive_unchanged(delta_spark: SparkSession, tmp_path: Path) -> None:
    fields = pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int16()),
            ("yes", pa.bool_()),
            ("price", pa.decimal128(20, 4)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("raw", pa.binary()),
            ("many", pa.list_(pa.string())),
            ("deep", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int32()))])),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
    )
    row: Row = {
        "id": 1,
        "small": -3,
        "yes": True,
        "price": Decimal("1234.5678"),
        "day": date(1969, 7, 20),
        "at": datetime(2026, 8, 1, 12, 30, 0, 123456, UTC).replace(tzinfo=None),
        "local": datetime(2026, 8, 1, 12, 30, 0, 123456),
        "raw": b"\x00\xff",
        "many": ["ä", None, ""],
        "deep": {"a": None, "b": [1, 2]},
        "map": {"k": 2**62},
    }
    table = DeltaHarness(delta_spark, tmp_path / "orders", columns="", create=True)
    table.fields = fields
    sink = table.opened()
    [piece] = sink.pre_commit(table.frame([row]), transaction_id())
    assert commit(sink, piece) == [Committed()]
    [found] = delta_spark.read.format("delta").load(str(table.folder)).collect()
    assert {**found.asDict(recursive=True), "raw": bytes(found["raw"])} == row


def test_narrower_columns_are_widened_and_others_refused(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(
        delta_spark, tmp_path / "orders", "ID BIGINT, name STRING, amount DECIMAL(20, 2)"
    )
    table.fields = pa.schema(
        [("id", pa.int32()), ("name", pa.string()), ("amount", pa.decimal128(10, 2))]
    )
    sink = table.opened()
    [piece] = sink.pre_commit(
        table.frame([{"id": 1, "name": "a", "amount": Decimal("1.50")}]), transaction_id()
    )
    assert commit(sink, piece) == [Committed()]
    assert table.rows_visible() == [{"ID": 1, "name": "a", "amount": Decimal("1.50")}]
    table.fields = pa.schema([("id", pa.string()), ("name", pa.string()), ("more", pa.int32())])
    with pytest.raises(
        ConfigError,
        match=r"'id': the rows have string, the table has bigint.*'more' is not in the table",
    ):
        table.opened()
    table.fields = pa.schema([("id", pa.int32()), ("name", pa.string())])
    table.opened()


def test_merge_schema_adds_columns_before_the_first_rows(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", "id BIGINT", merge_schema=True)
    sink = table.opened()
    assert table.spark.read.format("delta").load(str(table.folder)).columns == ["id"]
    piece = table.write(sink, range(2))
    assert table.ids() == []
    assert commit(sink, piece) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == table.rows(range(2))


def test_a_piece_of_before_a_merge_is_committed_after_it(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", "id BIGINT", merge_schema=True)
    table.fields = pa.schema([("id", pa.int64())])
    sink = table.opened()
    [old] = sink.pre_commit(table.frame([{"id": 1}]), transaction_id(0))
    table.fields = table.schema
    again = table.opened(Attempt(2, 1))
    new = table.write(again, [2], 1, Attempt(2, 1))
    assert commit(again, old, new) == [Committed(), Committed()]
    assert table.ids() == [1, 2]


PAIR = "STRUCT<x: BIGINT, y: STRING>"
NESTED = (
    f"id BIGINT, plain {PAIR}, many ARRAY<{PAIR}>, named MAP<STRING, {PAIR}>, "
    f"keyed MAP<{PAIR}, STRING>, deep STRUCT<i: MAP<STRING, ARRAY<{PAIR}>>>"
)


def nested(spark: SparkSession, pair: str, value: str) -> DataFrame:
    """Rows of `NESTED` with another type of pair, a value of it, and nulls."""
    nothing = f"CAST(NULL AS {pair})"
    return spark.sql(
        f"SELECT 1L AS id, {value} AS plain, array({value}, {nothing}) AS many, "
        f"map('k', {value}, 'l', {nothing}) AS named, map({value}, 'v') AS keyed, "
        f"named_struct('i', map('k', array({value}, {nothing}))) AS deep UNION ALL "
        f"SELECT 2L, {nothing}, array(), map(), CAST(NULL AS MAP<{pair}, STRING>), "
        "named_struct('i', NULL)"
    ).coalesce(1)


def shown(table: DeltaHarness) -> tuple[str, list[str]]:
    """Types and rows; the rows as text, because a key with a list is none in Python."""
    found = table.spark.read.format("delta").load(str(table.folder))
    rows = found.selectExpr(*(f"cast({name} AS STRING) AS {name}" for name in found.columns))
    return found.schema.simpleString(), sorted(map(str, rows.collect()))


@pytest.mark.parametrize("more", ["", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"])
@pytest.mark.parametrize(
    ("pair", "value", "merged"),
    [
        ("STRUCT<y: STRING, X: BIGINT>", "named_struct('y', 'a', 'X', 1L)", False),
        ("STRUCT<y: STRING>", "named_struct('y', 'a')", False),
        (
            "STRUCT<`z-z`: ARRAY<INT>, y: STRING, x: BIGINT>",
            "named_struct('z-z', array(7), 'y', 'a', 'x', 1L)",
            True,
        ),
        ("STRUCT<z: INT>", "named_struct('z', 7)", True),
    ],
    ids=["order", "one less", "one more", "another"],
)
def test_fields_of_structs_go_where_deltas_own_writer_puts_them(
    delta_spark: SparkSession, tmp_path: Path, pair: str, value: str, merged: bool, more: str
) -> None:
    frame = nested(delta_spark, pair, value)
    table = DeltaHarness(delta_spark, tmp_path / "orders", NESTED, more)
    table.fields = to_arrow_schema(frame.schema, timezone=None)
    if merged:
        with pytest.raises(ConfigError, match=r"'plain.z.*'deep.i.value.element.z") as caught:
            table.opened()
        assert "merge_schema=True adds" in str(caught.value)
    sink = table.opened(merge_schema=merged)
    for checkpoint in range(2):
        [piece] = sink.pre_commit(frame, transaction_id(checkpoint))
        assert commit(sink, piece) == [Committed()]
    theirs = DeltaHarness(delta_spark, tmp_path / "theirs", NESTED, more)
    for _ in range(2):
        frame.write.format("delta").mode("append").option("mergeSchema", merged).save(
            str(theirs.folder)
        )
    assert shown(table) == shown(theirs)


def test_fields_of_structs_are_widened(delta_spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for name, kind, value in (("narrow", "INT", "1"), ("wide", "BIGINT", "1L")):
        pair = f"STRUCT<x: {kind}, y: STRING>"
        frame = nested(delta_spark, pair, f"named_struct('x', {value}, 'y', 'a')")
        table = DeltaHarness(delta_spark, tmp_path / name, NESTED)
        table.fields = to_arrow_schema(frame.schema, timezone=None)
        sink = table.opened()
        [piece] = sink.pre_commit(frame, transaction_id())
        assert commit(sink, piece) == [Committed()]
        found.append(shown(table))
    assert found[0] == found[1]


# -- where the table is ----------------------------------------------------------------------------


VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def sink_for(
    spark: SparkSession, schema: pa.Schema | None = DeltaHarness.schema, **options: Any
) -> OpenDeltaSink:
    context = DeltaHarness(spark, Path("/nowhere"), columns="").context(schema=schema)
    return DeltaSink(**options).open(context)


def test_a_new_table_is_nullable_at_every_depth(delta_spark: SparkSession, tmp_path: Path) -> None:
    """Delta has no NOT NULL inside arrays and maps, and a sink adds none elsewhere."""
    inner = pa.struct([pa.field("kind", pa.string(), nullable=False)])
    fields = [("id", pa.int64()), ("one", inner), ("some", pa.list_(inner))]
    schema = pa.schema([*fields, ("by", pa.map_(pa.string(), inner))])
    sink = DeltaSink(path=str(tmp_path / "t"), create=True)
    sink.open(SinkContext(JOB, SINK, schema, parallelism=1)).close()
    made = delta_spark.read.format("delta").load(str(tmp_path / "t")).schema
    assert made.names == schema.names
    assert "false" not in made.json()


def test_create_makes_a_partitioned_table_once(delta_spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "orders"
    first = sink_for(delta_spark, path=str(folder), create=True, partition_by=["name"])
    second = sink_for(delta_spark, path=str(folder), create=True, partition_by=["name"])
    assert first.target() == second.target()
    with pytest.raises(ConfigError, match="partition_by"):
        sink_for(delta_spark, path=str(folder), create=True, partition_by=["id"])


def test_a_table_by_name_is_the_table_in_its_folder(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    name = fresh_name("orders")
    delta_spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta LOCATION '{tmp_path / 'orders'}'")
    try:
        assert (
            sink_for(delta_spark, table=name).target()
            == sink_for(delta_spark, path=str(tmp_path / "orders")).target()
        )
    finally:
        delta_spark.sql(f"DROP TABLE {name}")


def test_create_makes_a_table_of_the_catalog(delta_spark: SparkSession, tmp_path: Path) -> None:
    database, name = fresh_name("shop"), fresh_name("orders")
    delta_spark.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path}'")
    try:
        table = DeltaHarness(delta_spark, tmp_path / name, columns="")
        table.options = {
            "path": None,
            "table": f"{database}.{name}",
            "create": True,
            "partition_by": ["name"],
        }
        sink = table.opened()
        assert commit(sink, table.write(sink, range(3))) == [Committed()]
        assert delta_spark.table(f"{database}.{name}").count() == 3
        assert {path.parent.name for path in table.data_files()} == {
            "name=row 0",
            "name=row 1",
            "name=row 2",
        }
    finally:
        delta_spark.sql(f"DROP DATABASE {database} CASCADE")


def test_a_table_of_the_catalog_in_another_format_is_refused(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    name = fresh_name("orders")
    delta_spark.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING parquet LOCATION '{tmp_path / 'orders'}'"
    )
    try:
        for create in (False, True):
            with pytest.raises(ConfigError, match="not a Delta table but 'parquet'"):
                sink_for(delta_spark, table=name, create=create)
    finally:
        delta_spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    ("options", "more", "what"),
    [
        ({"partition_by": ["day"]}, (), r"partition columns \['day'\] are not in the rows"),
        ({"partition_by": ["NAME"]}, (), r"partition columns \['NAME'\] are not in the rows"),
        ({"partition_by": ["id", "name", "amount"]}, (), "ALL_PARTITION_COLUMNS_NOT_ALLOWED"),
        (
            {"partition_by": ["many"]},
            (("many", pa.list_(pa.int32())),),
            "INVALID_PARTITION_COLUMN_DATA_TYPE",
        ),
        ({}, (("ID", pa.int32()),), "COLUMN_ALREADY_EXISTS"),
        ({}, (("a b", pa.int32()),), "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        ({}, (("wait", pa.duration("us")),), "DELTA_UNSUPPORTED_DATA_TYPES"),
        ({}, (("v", VARIANT),), "column 'v': a VARIANT is not supported"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
@pytest.mark.parametrize("by", ["path", "table"])
def test_what_is_refused_leaves_no_new_table_behind(
    delta_spark: SparkSession,
    tmp_path: Path,
    by: str,
    options: dict[str, Any],
    more: tuple[Any, ...],
    what: str,
) -> None:
    where = {"path": str(tmp_path / "new" / "orders"), "table": fresh_name("orders")}
    table = DeltaHarness(
        delta_spark, tmp_path / "new" / "orders", columns="", create=True, **options
    )
    table.options |= {"path": None, "table": None, by: where[by]}
    table.fields = pa.schema([*table.schema, *more])
    with pytest.raises(ConfigError, match=what):
        table.opened()
    assert list(tmp_path.iterdir()) == []
    assert not delta_spark.catalog.tableExists(where["table"])
    table.fields, table.options["partition_by"] = table.schema, ["name"]
    try:
        table.opened()
    finally:
        delta_spark.sql(f"DROP TABLE IF EXISTS {where['table']}")


def test_where_nothing_can_be_written_no_table_is_made(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    with pytest.raises(PreflightError, match="cannot be written"):
        sink_for(delta_spark, path=str(closed / "new" / "orders"), create=True)
    assert list(closed.iterdir()) == []
    closed.chmod(0o755)
    sink_for(delta_spark, path=str(closed / "new" / "orders"), create=True)
    shutil.rmtree(closed)
    (tmp_path / "file").write_text("theirs")
    with pytest.raises(PreflightError, match=r"Could not create table|cannot be written"):
        sink_for(delta_spark, path=str(tmp_path / "file" / "orders"), create=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]


def test_the_rows_bring_the_partition_columns(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaHarness(
        delta_spark, tmp_path / "orders", f"{COLUMNS}, day DATE", "PARTITIONED BY (day)"
    )
    with pytest.raises(
        ConfigError, match="column 'day' is not in the rows and is a partition column"
    ):
        table.opened()


def test_statistics_are_needed(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    no_statistics = {"spark.databricks.delta.stats.collect": "false"}
    with (
        changed(delta_spark, no_statistics),
        pytest.raises(PreflightError, match=r"stats\.collect"),
    ):
        table.opened()
    with changed(delta_spark, {"spark.databricks.delta.stats.collect": "true"}):
        table.opened()


def test_another_version_of_delta_is_refused(
    delta_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "VERSION", "4.4.1")
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    with pytest.raises(
        PreflightError, match=r"There is Delta 4\.4\.0 .* works with Delta 4\.4\.1 only"
    ):
        table.opened()


def test_a_storage_on_which_delta_keeps_one_process_apart_from_itself_only_is_refused(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    java: Any = delta_spark._jvm
    conf, key = java.org.apache.spark.SparkEnv.get().conf(), "spark.delta.logStore.file.impl"
    conf.set(key, "io.delta.storage.S3SingleDriverLogStore")
    try:
        table = DeltaHarness(delta_spark, tmp_path / "orders")
        with pytest.raises(PreflightError, match="S3SingleDriverLogStore"):
            table.opened()
        with pytest.raises(PreflightError, match="S3SingleDriverLogStore"):
            sink_for(delta_spark, path=str(tmp_path / "new"), create=True)
        assert not (tmp_path / "new").exists()
        append_twice(
            DeltaHarness(delta_spark, tmp_path / "alone", allow_single_driver_log_store=True)
        )
    finally:
        conf.remove(key)


def test_what_is_no_table_is_refused_and_left_alone(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    parquet, outer = tmp_path / "parquet", tmp_path / "outer"
    delta_spark.range(3).coalesce(1).write.parquet(str(parquet))
    DeltaHarness(delta_spark, outer)
    inside = tmp_path / "inside"
    (tmp_path / "link").symlink_to(outer)
    inside.mkdir()
    cases: list[tuple[type[TwoPhaseError], str, dict[str, Any]]] = [
        (ConfigError, "not a Delta table", {"path": str(parquet)}),
        (ConfigError, "not a Delta table", {"path": str(parquet), "create": True}),
        (ConfigError, "no Delta table", {"path": str(tmp_path / "nothing")}),
        (
            ConfigError,
            "inside another Delta table",
            {"path": str(outer / "name=x"), "create": True},
        ),
        (ConfigError, "not inside the option 'root'", {"path": str(outer), "root": str(inside)}),
        (
            ConfigError,
            "not inside the option 'root'",
            {"path": f"{inside}/../outer", "root": str(inside)},
        ),
        (
            ConfigError,
            "not inside the option 'root'",
            {"path": str(tmp_path / "link"), "root": str(tmp_path / "lin")},
        ),
        (ConfigError, "does not exist", {"table": "no_such_table"}),
        (
            ConfigError,
            "no Delta table",
            {"path": str(tmp_path / "nothing"), "create": True, "schema": None},
        ),
        (ConfigError, "does not exist", {"table": "no_such_table", "create": True, "schema": None}),
        (ConfigError, "cannot be used", {"path": "nosuchscheme://bucket/orders"}),
    ]
    before = sorted(tmp_path.rglob("*"))
    for kind, message, options in cases:
        with pytest.raises(kind, match=message):
            sink_for(delta_spark, **options)
    assert sorted(tmp_path.rglob("*")) == before
    assert sink_for(delta_spark, path=str(tmp_path / "link"), root=str(outer)).target()
    assert sink_for(delta_spark, path=str(tmp_path / "nothing"), create=True).target()


def test_what_a_driver_left_that_died_while_its_table_was_made_is_no_obstacle(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "orders" / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / ".00000000000000000000.json.0f5c.tmp").write_text('{"commitInfo":')
    table = DeltaHarness(delta_spark, tmp_path / "orders", columns="", create=True)
    sink = table.opened()
    assert commit(sink, table.write(sink, range(3))) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_what_is_hidden_in_a_log_without_a_commit_is_refused_and_left_alone(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "orders" / "_delta_log"
    log.mkdir(parents=True)
    (log / ".theirs").write_text("theirs")
    with pytest.raises(ConfigError, match="not a Delta table"):
        sink_for(delta_spark, path=str(tmp_path / "orders"), create=True)
    assert sorted(path.name for path in log.iterdir()) == [".theirs"]


def test_a_folder_that_cannot_be_written_is_refused(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    before = sorted(table.folder.rglob("*"))
    table.folder.chmod(0o555)
    try:
        with pytest.raises(PreflightError, match="cannot be written"):
            table.opened()
    finally:
        table.folder.chmod(0o755)
    assert sorted(table.folder.rglob("*")) == before
    table.opened()
