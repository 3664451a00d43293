"""Which tables the Delta sink takes: every table feature works, with its promise kept, or
is refused by name.

What is refused is refused by `open`, before anything is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from integration.delta.sink_harness import COLUMNS, DeltaHarness, append_twice, commit
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError, PreflightError, RejectedRowsError, StopJobError
from twophase.ids import Attempt
from twophase.testing.harness import transaction_id

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]


def files(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action["add"] for action in actions if "add" in action]


# -- table features --------------------------------------------------------------------------------

FEATURES = {
    "appendOnly": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "changeDataFeed": (
        f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    ),
    "clustering": f"({COLUMNS}) USING delta CLUSTER BY (id)",
    "columnMapping by name": (
        f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    ),
    "columnMapping by id": (
        f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')"
    ),
    "deletionVectors": (
        f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    ),
    "inCommitTimestamp": (
        f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"
    ),
    "partitions": f"({COLUMNS}) USING delta PARTITIONED BY (name)",
    "rowTracking": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "typeWidening": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
    "v2Checkpoint": f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
    "vacuumProtocolCheck": (
        f"({COLUMNS}) USING delta TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')"
    ),
}


def make(spark: SparkSession, folder: Path, definition: str, **options: Any) -> DeltaHarness:
    columns, _, more = definition.rpartition(") USING delta")
    return DeltaHarness(spark, folder, columns.removeprefix("("), more, **options)


@pytest.mark.parametrize("feature", FEATURES)
def test_rows_arrive_on_a_table_with(
    delta_spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES[feature])
    added = files(append_twice(table))
    assert sum(json.loads(file["stats"])["numRecords"] for file in added) == 3


def test_row_tracking_gives_every_row_an_id_of_its_own(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES["rowTracking"])
    [file] = files(append_twice(table))
    assert (file["baseRowId"], file["defaultRowCommitVersion"]) == (3, len(table.commits()) - 1)


def test_changes_are_in_the_change_data_feed(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES["changeDataFeed"])
    append_twice(table)
    feed = (
        delta_spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 0)
    )
    changes = feed.load(str(table.folder)).select("id", "_change_type").collect()
    assert sorted((row[0], row[1]) for row in changes) == [
        (number, "insert") for number in range(6)
    ]


def test_a_row_is_deleted_by_a_deletion_vector_and_stays_so(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = make(delta_spark, tmp_path / "orders", FEATURES["deletionVectors"])
    sink = table.opened()
    commit(sink, table.write(sink, range(10), 0))
    piece = table.write(sink, range(10, 12), 1)
    table.sql("DELETE FROM {table} WHERE id = 4")
    assert any("deletionVector" in file for file in files(table.commits()[-1]))
    assert commit(sink, piece) == [Committed()]
    assert table.ids() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


def test_a_column_that_was_widened_takes_rows_of_the_old_type(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    fields = pa.schema([("id", pa.int32())])
    table = make(
        delta_spark, tmp_path / "orders", FEATURES["typeWidening"].replace(COLUMNS, "id INT")
    )
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
    assert {row["id"]: row["twice"] for row in table.rows_visible()} == {
        number: 2 * number for number in range(6)
    }


@pytest.mark.parametrize(
    ("columns", "statement"),
    [
        ("id BIGINT, name STRING NOT NULL, amount DOUBLE", ""),
        (COLUMNS, "ALTER TABLE {table} ADD CONSTRAINT named CHECK (name IS NOT NULL)"),
    ],
    ids=["invariant", "constraint"],
)
def test_constraints_hold(
    delta_spark: SparkSession, tmp_path: Path, columns: str, statement: str
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", columns)
    if statement:
        table.sql(statement)
    append_twice(table)
    sink = table.opened(Attempt(2, 1))
    with pytest.raises(RejectedRowsError, match="name"):
        sink.pre_commit(
            table.frame([{"id": 7, "name": None, "amount": 1.0}]), transaction_id(7, Attempt(2, 1))
        )


def test_a_column_with_a_default_takes_what_the_rows_say(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    properties = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    table = DeltaHarness(
        delta_spark,
        tmp_path / "orders",
        "id BIGINT, name STRING DEFAULT 'x', amount DOUBLE",
        properties,
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
        (
            "TBLPROPERTIES ('delta.enableIcebergCompatV1' = 'true', 'delta.columnMapping.mode' = "
            "'name')"
        ),
        "'icebergCompatV1' is not supported",
    ),
    "a short memory": (
        COLUMNS,
        "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 29 days')",
        "setTransactionRetentionDuration is 29 days",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_name_before_any_write(
    delta_spark: SparkSession, tmp_path: Path, what: str
) -> None:
    columns, more, named = REFUSED[what]
    table = DeltaHarness(delta_spark, tmp_path / "orders", columns, more)
    before = sorted(table.folder.rglob("*"))
    with pytest.raises(PreflightError, match=named):
        table.opened()
    assert sorted(table.folder.rglob("*")) == before


def test_a_table_that_remembers_for_a_month_is_taken(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    retention = "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 30 days')"
    append_twice(DeltaHarness(delta_spark, tmp_path / "orders", more=retention))


def test_a_feature_that_was_added_behind_our_back_stops_the_next_checkpoint(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    sink = table.opened()
    piece = table.write(sink, range(3), 0)
    table.sql(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.variantType-preview' = 'supported')"
    )
    with pytest.raises(StopJobError, match="variantType-preview"):
        commit(sink, piece)
    with pytest.raises(StopJobError, match="variantType-preview"):
        table.write(sink, range(3), 1)
    assert table.ids() == []
