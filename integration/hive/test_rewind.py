"""A rewind of a Hive table: files as in a plain folder, and what the metastore shows of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from harness.staged_sink_harness import commit, orders
from integration.hive.sink_harness import HiveHarness
from twophase.contract.outcome import Committed
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from twophase.internals.failpoints import FailpointError
from twophase.sinks.common.staging import rewound
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.testing.harness import LINEAGE

pytestmark = pytest.mark.part("hive")

DT = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("dt", pa.string())]
)
RESTORING = Attempt(2, 0)
KEEP = {LINEAGE: 0}


@pytest.fixture
def table(hive_spark: SparkSession) -> HiveHarness:
    """Two checkpoints: the first in partition a, the second in a and b."""
    table = HiveHarness(hive_spark, DT, create=True, partition_by=["dt"], success_file=True)
    sink = table.opened()
    rows = [orders([0], dt="a"), orders([1], dt="a") + orders([2], dt="b")]
    for number, some in enumerate(rows):
        assert commit(sink, table.write(sink, some, number)) == [Committed()]
    assert ids(table) == [0, 1, 2]
    return table


def ids(table: HiveHarness) -> list[int]:
    return sorted(row["id"] for row in table.rows_visible())


def rewind(table: HiveHarness, attempt: Attempt = RESTORING) -> OpenStagedSink:
    sink = table.opened(attempt)
    sink.check_rewind(KEEP)
    sink.rewind(KEEP, attempt)
    return sink


def successes(table: HiveHarness) -> list[Path]:
    return sorted(table.path.rglob("_SUCCESS"))


def test_partitions_stay_and_are_not_complete(table: HiveHarness) -> None:
    """The session that has read them sees the files go, without REFRESH TABLE."""
    assert len(successes(table)) == 2
    sink = rewind(table)
    assert ids(table) == [0]
    assert table.partitions() == ["dt=a", "dt=b"]
    assert successes(table) == []
    assert sink.history().committed == KEEP
    rewind(table, Attempt(3, 0))
    assert ids(table) == [0]


def test_the_restored_job_fills_the_partitions_again(table: HiveHarness) -> None:
    rewind(table)
    sink = table.opened(Attempt(2, 1))
    piece = table.write(sink, orders([1], dt="b"), 1, Attempt(2, 1))
    assert commit(sink, piece) == [Committed()]
    assert ids(table) == [0, 1]
    assert [path.parent.name for path in successes(table)] == ["dt=b"]


def test_a_partition_is_not_complete_before_its_first_file_goes(
    table: HiveHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any) -> None:
        raise FailpointError("before the first file")

    with monkeypatch.context() as patch:
        patch.setattr(rewound, "rename_new", dies)
        with pytest.raises(FailpointError):
            rewind(table)
    assert successes(table) == []
    rewind(table, Attempt(3, 0))
    assert ids(table) == [0]


@pytest.mark.parametrize("folded", [False, True], ids=["by manifest", "by name"])
def test_a_partition_that_is_elsewhere_is_refused(table: HiveHarness, folded: bool) -> None:
    """Whoever has moved it may have taken the rows along."""
    if folded:
        table.opened().subsume(LINEAGE, 1)
    elsewhere = table.path.with_name(f"{table.path.name}_elsewhere")
    (table.path / "dt=b").rename(elsewhere)
    table.sql(f"ALTER TABLE {{table}} PARTITION (dt='b') SET LOCATION '{elsewhere}'")
    message = "'dt=b' is at" if folded else "is no longer in the table"
    sink = table.opened(RESTORING)
    for call in (lambda: sink.check_rewind(KEEP), lambda: sink.rewind(KEEP, RESTORING)):
        with pytest.raises(RestoreRefusedError, match=message):
            call()
    assert ids(table) == [0, 1, 2]
    elsewhere.rename(table.path / "dt=b")
    table.sql(f"ALTER TABLE {{table}} PARTITION (dt='b') SET LOCATION '{table.path / 'dt=b'}'")
    rewind(table, Attempt(3, 0))
    assert ids(table) == [0]


def test_rows_that_others_have_inserted_stay(table: HiveHarness) -> None:
    table.sql("INSERT INTO {table} VALUES (100, 'theirs', 1.5, 'b')")
    rewind(table)
    assert ids(table) == [0, 100]


def test_a_partition_that_was_overwritten_is_refused(table: HiveHarness) -> None:
    table.sql("INSERT OVERWRITE {table} PARTITION (dt='b') VALUES (2, 'compacted', 1.5)")
    with pytest.raises(RestoreRefusedError, match="is no longer in the table"):
        rewind(table)


@pytest.fixture
def plain(hive_spark: SparkSession) -> HiveHarness:
    """A table without partitions, and two checkpoints."""
    table = HiveHarness(hive_spark, create=True)
    sink = table.opened()
    for number in range(2):
        assert commit(sink, table.write(sink, orders([number]), number)) == [Committed()]
    return table


def test_a_table_without_partitions_is_rewound(plain: HiveHarness) -> None:
    sink = rewind(plain)
    assert ids(plain) == [0]
    assert sink.history().committed == KEEP


def test_a_table_without_partitions_that_is_elsewhere_is_refused(plain: HiveHarness) -> None:
    sink = plain.opened(RESTORING)
    plain.sql(f"ALTER TABLE {{table}} SET LOCATION '{plain.path}_elsewhere'")
    for call in (lambda: sink.check_rewind(KEEP), lambda: sink.rewind(KEEP, RESTORING)):
        with pytest.raises(RestoreRefusedError, match="the table is at"):
            call()
    assert len(plain.files()) == 2
    sink.check_rewind({LINEAGE: 1})
    plain.sql(f"ALTER TABLE {{table}} SET LOCATION '{plain.path}'")
    rewind(plain, Attempt(3, 0))
    assert ids(plain) == [0]
