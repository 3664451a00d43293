"""Partition values from hell: each reads back equal, or is refused by name before anything of
the row is visible.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from harness.hostile_values import READABLE, REFUSED
from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.outcome import Committed
from twophase.errors import RejectedRowsError
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import NULL_NAME
from twophase.testing.harness import transaction_id

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
RANDOM = "TBLPROPERTIES ('delta.randomizeFilePrefixes' = 'true')"
TEXT, BYTES = pa.string(), pa.binary()


def partitioned(
    spark: SparkSession, folder: Path, kind: pa.DataType = TEXT, more: str = ""
) -> DeltaHarness:
    columns = f"id BIGINT, part {'STRING' if kind == TEXT else 'BINARY'}"
    table = DeltaHarness(spark, folder / "orders", columns, f"PARTITIONED BY (part) {more}")
    # Delta finds columns without case
    table.fields = pa.schema([("id", pa.int64()), ("Part", kind)])
    return table


def rows_of(values: list[Any]) -> list[dict[str, Any]]:
    return [{"id": number, "Part": value} for number, value in enumerate(values)]


def read_back(table: DeltaHarness) -> list[Any]:
    return [row["part"] for row in sorted(table.rows_visible(), key=lambda row: row["id"])]


def test_every_readable_partition_value_reads_back_equal(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = partitioned(delta_spark, tmp_path)
    values = [value for value in READABLE if value is None or "\0" not in value]
    assert len(values) >= 200
    sink = table.opened()
    assert commit(sink, *sink.pre_commit(table.frame(rows_of(values)), transaction_id())) == [
        Committed()
    ]
    assert read_back(table) == values
    assert all(path.resolve().is_relative_to(table.folder.resolve()) for path in table.data_files())
    assert len(table.data_files()) == len(values)


@pytest.mark.parametrize("more", [MAPPED, RANDOM], ids=["mapped", "random"])
def test_folders_with_random_names_take_what_names_of_folders_cannot(
    delta_spark: SparkSession, tmp_path: Path, more: str
) -> None:
    table = partitioned(delta_spark, tmp_path, more=more)
    values = ["\0", "a\0b", "x" * 300, "%" * 90, "../../x"]
    sink = table.opened()
    commit(sink, *sink.pre_commit(table.frame(rows_of(values)), transaction_id()))
    assert read_back(table) == values
    with pytest.raises(RejectedRowsError, match="would read back as null"):
        sink.pre_commit(table.frame(rows_of([""])), transaction_id(1))


@pytest.mark.parametrize("value", [*REFUSED, "\0", "a\0b"], ids=ascii)
def test_a_value_that_would_change_or_make_no_folder_is_refused(
    delta_spark: SparkSession, tmp_path: Path, value: str
) -> None:
    table = partitioned(delta_spark, tmp_path)
    sink = table.opened()
    with pytest.raises(
        RejectedRowsError, match=r"partition column 'Part': (would read back as null|holds|makes)"
    ) as caught:
        sink.pre_commit(table.frame(rows_of(["fine", value, None])), transaction_id())
    assert "SQLSTATE" not in caught.value.what
    if value in ("", NULL_NAME):
        assert caught.value.what.endswith(f"would read back as null: {shown(value)}.")
        [advised] = re.findall(r"with (nullif\(.*\)) in the query", caught.value.remedy)
    sink.abort(sink.in_doubt())
    assert (table.rows_visible(), table.data_files(), table.records()) == ([], [], [])
    if value in ("", NULL_NAME):
        mended = table.frame(rows_of(["fine", value])).selectExpr("id", f"{advised} AS Part")
        pieces = sink.pre_commit(mended, transaction_id(1))
        assert commit(sink, *pieces) == [Committed()] * len(pieces)
        assert read_back(table) == ["fine", None]


def test_the_longest_name_of_a_folder_is_taken(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = partitioned(delta_spark, tmp_path)
    longest = ["x" * 250, "é" * 125, "=" * 83 + "x"]  # and 5 bytes before each: part=
    sink = table.opened()
    commit(sink, *sink.pre_commit(table.frame(rows_of(longest)), transaction_id()))
    assert read_back(table) == longest
    for checkpoint, value in enumerate(longest, 1):
        with pytest.raises(RejectedRowsError, match="more than 255 bytes"):
            sink.pre_commit(table.frame(rows_of([value + "x"])), transaction_id(checkpoint))


def test_bytes_read_back_equal_or_are_refused(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = partitioned(delta_spark, tmp_path, BYTES)
    values = [b"abc", "ä".encode(), None]
    sink = table.opened()
    commit(sink, *sink.pre_commit(table.frame(rows_of(values)), transaction_id()))
    assert read_back(table) == values
    for checkpoint, (value, reason) in enumerate([(b"\xff", "not UTF-8"), (b"", "as null")], 1):
        with pytest.raises(RejectedRowsError, match=reason):
            sink.pre_commit(table.frame(rows_of([value])), transaction_id(checkpoint))


def test_a_string_that_is_not_utf_8_is_refused(delta_spark: SparkSession, tmp_path: Path) -> None:
    table = partitioned(delta_spark, tmp_path)
    sink = table.opened()
    frame = delta_spark.sql("SELECT 1L AS id, CAST(X'41FF' AS STRING) AS Part")
    with pytest.raises(RejectedRowsError, match="not UTF-8"):
        sink.pre_commit(frame, transaction_id())
