"""Which tables the Delta sink takes: every table feature works, with its promise kept, or is refused by name.

What is refused is refused by `open`, before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from integration.delta_harness import COLUMNS, DeltaHarness, commit
from sinks.delta.sink import DeltaSink
from twophase.errors import ConfigError, PreflightError, RejectedRowsError, StopJobError, TwoPhaseError
from twophase.ids import Attempt
from twophase.protocol.outcome import Committed
from twophase.testing.harness import Row, fresh_name, transaction_id


def append_twice(table: DeltaHarness) -> list[dict[str, Any]]:
    """Two checkpoints through both phases; returns the commits of the second one's rows."""
    sink = table.opened()
    for checkpoint in range(2):
        ids = range(3 * checkpoint, 3 * checkpoint + 3)
        assert commit(sink, table.write(sink, ids, checkpoint)) == [Committed()]
    assert table.ids() == list(range(6))
    return table.commits()[-1]


def files(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action["add"] for action in actions if "add" in action]


# -- table features --------------------------------------------------------------------------------------------------

FEATURES = {
    "appendOnly": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "changeDataFeed": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "clustering": f"({COLUMNS}) USING delta CLUSTER BY (id)",
    "columnMapping by name": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "columnMapping by id": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')",
    "deletionVectors": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "inCommitTimestamp": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "partitions": f"({COLUMNS}) USING delta PARTITIONED BY (name)",
    "rowTracking": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "typeWidening": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
    "v2Checkpoint": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
    "vacuumProtocolCheck": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')",
}


def make(spark: SparkSession, folder: Path, definition: str, **options: Any) -> DeltaHarness:
    columns, _, more = definition.rpartition(") USING delta")
    return DeltaHarness(spark, folder, columns.removeprefix("("), more, **options)


@pytest.mark.parametrize("feature", FEATURES)
def test_rows_arrive_on_a_table_with(delta_spark: SparkSession, tmp_path: Path, feature: str) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES[feature])
    added = files(append_twice(table))
    assert sum(json.loads(file["stats"])["numRecords"] for file in added) == 3


def test_row_tracking_gives_every_row_an_id_of_its_own(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES["rowTracking"])
    [file] = files(append_twice(table))
    assert (file["baseRowId"], file["defaultRowCommitVersion"]) == (3, len(table.commits()) - 1)


def test_changes_are_in_the_change_data_feed(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES["changeDataFeed"])
    append_twice(table)
    feed = delta_spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes = feed.load(str(table.folder)).select("id", "_change_type").collect()
    assert sorted((row[0], row[1]) for row in changes) == [(number, "insert") for number in range(6)]


def test_a_row_is_deleted_by_a_deletion_vector_and_stays_so(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES["deletionVectors"])
    sink = table.opened()
    commit(sink, table.write(sink, range(10), 0))
    piece = table.write(sink, range(10, 12), 1)
    table.sql("DELETE FROM {table} WHERE id = 4")
    assert any("deletionVector" in file for file in files(table.commits()[-1]))
    assert commit(sink, piece) == [Committed()]
    assert table.ids() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


def test_a_column_that_was_widened_takes_rows_of_the_old_type(delta_spark: SparkSession, tmp_path: Path) -> None:
    fields = pa.schema([("id", pa.int32())])
    table = make(delta_spark, tmp_path / "orders", FEATURES["typeWidening"].replace(COLUMNS, "id INT"))
    table.fields = fields
    sink = table.opened()
    [first] = sink.pre_commit(table.frame([{"id": 1}]), transaction_id(0))
    commit(sink, first)
    table.sql("ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    sink = table.opened(Attempt(2, 1))
    [second] = sink.pre_commit(table.frame([{"id": 2}]), transaction_id(1, Attempt(2, 1)))
    assert commit(sink, second) == [Committed()]
    assert table.ids() == [1, 2]


def test_generated_columns_are_computed(delta_spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    generated = "id BIGINT, name STRING, amount DOUBLE, twice BIGINT GENERATED ALWAYS AS (id * 2)"
    table = DeltaHarness(delta_spark, folder, generated)
    append_twice(table)
    assert {row["id"]: row["twice"] for row in table.rows_visible()} == {number: 2 * number for number in range(6)}


@pytest.mark.parametrize(
    ("columns", "statement"),
    [
        ("id BIGINT, name STRING NOT NULL, amount DOUBLE", ""),
        (COLUMNS, "ALTER TABLE {table} ADD CONSTRAINT named CHECK (name IS NOT NULL)"),
    ],
    ids=["invariant", "constraint"],
)
def test_constraints_hold(delta_spark: SparkSession, tmp_path: Path, columns: str, statement: str) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", columns)
    if statement:
        table.sql(statement)
    append_twice(table)
    sink = table.opened(Attempt(2, 1))
    with pytest.raises(RejectedRowsError, match="name"):
        sink.pre_commit(table.frame([{"id": 7, "name": None, "amount": 1.0}]), transaction_id(7, Attempt(2, 1)))


def test_a_column_with_a_default_takes_what_the_rows_say(delta_spark: SparkSession, tmp_path: Path) -> None:
    properties = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    table = DeltaHarness(
        delta_spark, tmp_path / "orders", "id BIGINT, name STRING DEFAULT 'x', amount DOUBLE", properties
    )
    append_twice(table)
    table.fields = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
    with pytest.raises(ConfigError, match="'name' is not in the rows and has a default value"):
        table.opened()


REFUSED = {
    "an identity column": (
        "id BIGINT GENERATED ALWAYS AS IDENTITY, name STRING, amount DOUBLE",
        "",
        "'id' is an identity",
    ),
    "VARCHAR": ("id BIGINT, name VARCHAR(5), amount DOUBLE", "", r"varchar\(5\)"),
    "variantType": ("id BIGINT, name STRING, amount DOUBLE, more VARIANT", "", "'variantType"),
    "icebergCompatV1": (
        COLUMNS,
        "TBLPROPERTIES ('delta.enableIcebergCompatV1' = 'true', 'delta.columnMapping.mode' = 'name')",
        "'icebergCompatV1' is not supported",
    ),
    "a short memory": (
        COLUMNS,
        "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 29 days')",
        "setTransactionRetentionDuration is 29 days",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_name_before_any_write(delta_spark: SparkSession, tmp_path: Path, what: str) -> None:
    columns, more, named = REFUSED[what]
    table = DeltaHarness(delta_spark, tmp_path / "orders", columns, more)
    before = sorted(table.folder.rglob("*"))
    with pytest.raises(PreflightError, match=named):
        table.opened()
    assert sorted(table.folder.rglob("*")) == before


def test_a_table_that_remembers_for_a_month_is_taken(delta_spark: SparkSession, tmp_path: Path) -> None:
    retention = "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 30 days')"
    append_twice(DeltaHarness(delta_spark, tmp_path / "orders", more=retention))


def test_a_feature_that_was_added_behind_our_back_stops_the_next_checkpoint(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    sink = table.opened()
    piece = table.write(sink, range(3), 0)
    table.sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.variantType-preview' = 'supported')")
    with pytest.raises(StopJobError, match="variantType-preview"):
        commit(sink, piece)
    with pytest.raises(StopJobError, match="variantType-preview"):
        table.write(sink, range(3), 1)
    assert table.ids() == []


# -- columns ---------------------------------------------------------------------------------------------------------


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


def test_narrower_columns_are_widened_and_others_refused(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", "ID BIGINT, name STRING, amount DECIMAL(20, 2)")
    table.fields = pa.schema([("id", pa.int32()), ("name", pa.string()), ("amount", pa.decimal128(10, 2))])
    sink = table.opened()
    [piece] = sink.pre_commit(table.frame([{"id": 1, "name": "a", "amount": Decimal("1.50")}]), transaction_id())
    assert commit(sink, piece) == [Committed()]
    assert table.rows_visible() == [{"ID": 1, "name": "a", "amount": Decimal("1.50")}]
    table.fields = pa.schema([("id", pa.string()), ("name", pa.string()), ("more", pa.int32())])
    with pytest.raises(
        ConfigError, match=r"'id': the rows have string, the table has bigint.*'more' is not in the table"
    ):
        table.opened()


def test_merge_schema_adds_columns_before_the_first_rows(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", "id BIGINT", merge_schema=True)
    sink = table.opened()
    assert table.spark.read.format("delta").load(str(table.folder)).columns == ["id"]
    piece = table.write(sink, range(2))
    assert table.ids() == []
    assert commit(sink, piece) == [Committed()]
    assert sorted(table.rows_visible(), key=lambda row: row["id"]) == table.rows(range(2))


def test_a_piece_of_before_a_merge_is_committed_after_it(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", "id BIGINT", merge_schema=True)
    table.fields = pa.schema([("id", pa.int64())])
    sink = table.opened()
    [old] = sink.pre_commit(table.frame([{"id": 1}]), transaction_id(0))
    table.fields = table.schema
    again = table.opened(Attempt(2, 1))
    new = table.write(again, [2], 1, Attempt(2, 1))
    assert commit(again, old, new) == [Committed(), Committed()]
    assert table.ids() == [1, 2]


# -- where the table is ----------------------------------------------------------------------------------------------


def sink_for(spark: SparkSession, **options: Any) -> DeltaSink:
    sink = DeltaSink(**options)
    sink.open(DeltaHarness(spark, Path("/nowhere"), columns="").context())
    return sink


def test_create_makes_a_partitioned_table_once(delta_spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "orders"
    first = sink_for(delta_spark, path=str(folder), create=True, partition_by=["name"])
    second = sink_for(delta_spark, path=str(folder), create=True, partition_by=["name"])
    assert first.target() == second.target()
    with pytest.raises(ConfigError, match="partition_by"):
        sink_for(delta_spark, path=str(folder), create=True, partition_by=["id"])


def test_a_table_by_name_is_the_table_in_its_folder(delta_spark: SparkSession, tmp_path: Path) -> None:
    name = fresh_name("orders")
    delta_spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta LOCATION '{tmp_path / 'orders'}'")
    try:
        assert (
            sink_for(delta_spark, table=name).target() == sink_for(delta_spark, path=str(tmp_path / "orders")).target()
        )
    finally:
        delta_spark.sql(f"DROP TABLE {name}")


@contextmanager
def no_statistics(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        yield
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")


def test_statistics_are_needed(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    with no_statistics(delta_spark), pytest.raises(PreflightError, match=r"stats\.collect"):
        table.opened()


def test_what_is_no_table_is_refused_and_left_alone(delta_spark: SparkSession, tmp_path: Path) -> None:
    parquet, outer = tmp_path / "parquet", tmp_path / "outer"
    delta_spark.range(3).coalesce(1).write.parquet(str(parquet))
    DeltaHarness(delta_spark, outer)
    inside = tmp_path / "inside"
    (tmp_path / "link").symlink_to(outer)
    inside.mkdir()
    cases: list[tuple[type[TwoPhaseError], str, dict[str, Any]]] = [
        (ConfigError, "no Delta table", {"path": str(parquet)}),
        (ConfigError, "no Delta table", {"path": str(parquet), "create": True}),
        (ConfigError, "no Delta table", {"path": str(tmp_path / "nothing")}),
        (ConfigError, "inside another Delta table", {"path": str(outer / "name=x"), "create": True}),
        (ConfigError, "not inside the option 'root'", {"path": str(outer), "root": str(inside)}),
        (ConfigError, "not inside the option 'root'", {"path": f"{inside}/../outer", "root": str(inside)}),
        (ConfigError, "not inside the option 'root'", {"path": str(tmp_path / "link"), "root": str(tmp_path / "lin")}),
        (ConfigError, "not there", {"table": "no_such_table"}),
        (ConfigError, "cannot be used", {"path": "nosuchscheme://bucket/orders"}),
    ]
    before = sorted(tmp_path.rglob("*"))
    for kind, message, options in cases:
        with pytest.raises(kind, match=message):
            sink_for(delta_spark, **options)
    assert sorted(tmp_path.rglob("*")) == before
    assert sink_for(delta_spark, path=str(tmp_path / "link"), root=str(outer)).target()


def test_a_folder_that_cannot_be_written_is_refused(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    before = sorted(table.folder.rglob("*"))
    table.folder.chmod(0o555)
    try:
        with pytest.raises(PreflightError, match="cannot be written"):
            table.opened()
    finally:
        table.folder.chmod(0o755)
    assert sorted(table.folder.rglob("*")) == before
