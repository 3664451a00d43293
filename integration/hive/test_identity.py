"""Which table of the metastore the proofs are of: one that is dropped and created again over its
folder has no partitions.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from harness.staged_sink_harness import commit, orders
from integration.hive.sink_harness import HiveHarness
from twophase.contract.outcome import Committed
from twophase.contract.sink import SinkContext
from twophase.errors import ConfigError, TargetChangedError
from twophase.ids import Attempt
from twophase.testing.harness import JOB, SINK

pytestmark = pytest.mark.part("hive")

DT = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("dt", pa.string())]
)
SECOND = Attempt(2, 1)


def ids(table: HiveHarness) -> list[int]:
    return sorted(row["id"] for row in table.rows_visible())


def recreate(table: HiveHarness, ddl: str) -> None:
    """DROP and CREATE, over the same folder; the metastore counts seconds."""
    made = int(time.time())
    while int(time.time()) == made:
        time.sleep(0.05)
    table.sql("DROP TABLE {table}")
    table.make(ddl)


@pytest.fixture
def external(hive_spark: SparkSession, tmp_path: Path) -> tuple[HiveHarness, str]:
    """An external table with a committed piece, and how it is made."""
    table = HiveHarness(hive_spark, DT)
    ddl = (
        "CREATE EXTERNAL TABLE {table} (id BIGINT, name STRING, amount DOUBLE) "
        "PARTITIONED BY (dt STRING) STORED AS PARQUET "
        f"LOCATION '{tmp_path / 'rows'}'"
    )
    table.path = tmp_path / "rows"
    table.make(ddl)
    sink = table.opened()
    assert commit(sink, table.write(sink, orders([1], dt="a"))) == [Committed()]
    return table, ddl


def test_a_table_that_was_dropped_and_recreated_is_another_one_until_it_has_its_partitions(
    external: tuple[HiveHarness, str],
) -> None:
    table, ddl = external
    assert not table.opened(SECOND).history().replaced
    recreate(table, ddl)
    assert ids(table) == []
    again = table.new_sink().open(SinkContext(JOB, SINK, table.fields, parallelism=2))
    assert "was dropped and recreated over the same folder" in again.history().replaced
    table.sql("MSCK REPAIR TABLE {table}")
    assert not again.history().replaced
    assert ids(table) == [1]


def test_a_restore_says_that_the_new_table_is_meant(external: tuple[HiveHarness, str]) -> None:
    """It fences the table although that is another one."""
    table, ddl = external
    recreate(table, ddl)
    sink = table.opened(SECOND)
    assert not sink.history().replaced
    assert commit(sink, table.write(sink, orders([2], dt="b"), 1, SECOND)) == [Committed()]
    assert table.partitions() == ["dt=b"]


def test_a_table_that_is_dropped_and_recreated_under_a_running_job_gets_nothing(
    external: tuple[HiveHarness, str],
) -> None:
    table, ddl = external
    sink = table.opened(SECOND)
    piece = table.write(sink, orders([2], dt="b"), 1, SECOND)
    recreate(table, ddl)
    with pytest.raises(TargetChangedError, match=f"MSCK REPAIR TABLE .*{table.name}"):
        commit(sink, piece)
    assert table.partitions() == []
    table.sql("MSCK REPAIR TABLE {table}")
    assert commit(sink, piece) == [Committed()]
    assert ids(table) == [1, 2]


def test_a_history_that_finds_another_table_does_not_accept_it(
    external: tuple[HiveHarness, str],
) -> None:
    """A job that declines an attempt reads the history again, then raises the fence."""
    table, ddl = external
    sink = table.opened(SECOND)
    recreate(table, ddl)
    assert sink.history().replaced
    sink.fence(Attempt(2, 2))
    assert sink.history().replaced
    piece = table.write(sink, orders([2], dt="b"), 1, Attempt(2, 2))
    with pytest.raises(TargetChangedError, match="was dropped and recreated"):
        commit(sink, piece)


def test_a_table_that_a_commit_has_accepted_stays_accepted_after_a_declined_attempt(
    external: tuple[HiveHarness, str],
) -> None:
    """Whose partitions are dropped later by SQL, as others may do with any table."""
    table, ddl = external
    sink = table.opened(SECOND)
    piece = table.write(sink, orders([2], dt="b"), 1, SECOND)
    recreate(table, ddl)
    table.sql("MSCK REPAIR TABLE {table}")
    assert commit(sink, piece) == [Committed()]
    sink.fence(Attempt(2, 2))
    for partition in table.partitions():
        name, value = partition.split("=")
        table.sql(f"ALTER TABLE {{table}} DROP PARTITION ({name}='{value}')")
    assert not sink.history().replaced


def test_a_table_that_was_dropped_under_a_running_job_goes_on_when_it_is_there_again(
    external: tuple[HiveHarness, str],
) -> None:
    table, ddl = external
    sink = table.opened(SECOND)
    piece = table.write(sink, orders([2], dt="b"), 1, SECOND)
    table.sql("DROP TABLE {table}")
    with pytest.raises(ConfigError, match="is gone") as caught:
        sink.history()
    assert caught.value.remedy.startswith("create it again over the same folder")
    with pytest.raises(ConfigError, match="could not add partitions") as caught:
        commit(sink, piece)
    assert caught.value.remedy.endswith("or the table.")
    table.make(ddl)
    table.sql("MSCK REPAIR TABLE {table}")
    again = table.opened(SECOND)
    assert not again.history().replaced
    assert commit(again, piece) == [Committed()]
    assert ids(table) == [1, 2]
