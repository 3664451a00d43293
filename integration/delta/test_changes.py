"""Between the phases something of the table is lost or changed: what the Delta sink calls it, and
that nothing is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.spark_settings import changed
from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.outcome import Committed, Lost
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import StopJobError, TargetChangedError
from twophase.ids import Attempt
from twophase.testing.harness import transaction_id

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(delta_spark, tmp_path / "orders")


def test_a_missing_data_file_is_lost_before_anything_is_committed(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    [file] = table.data_files()
    file.unlink()
    before = len(table.commits())
    [outcome] = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert file.name in outcome.evidence
    assert len(table.commits()) == before


def test_a_data_file_of_another_length_is_lost(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    [file] = table.data_files()
    file.write_bytes(file.read_bytes()[:-1])
    assert isinstance(commit(sink, piece)[0], Lost)


@pytest.mark.parametrize(
    ("retain", "outcome"), [("168", Committed), ("0", Lost)], ids=["default", "nothing kept"]
)
def test_vacuum_between_the_phases(table: DeltaHarness, retain: str, outcome: type) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    with changed(table.spark, {check: "false"}):
        table.sql(f"VACUUM {{table}} RETAIN {retain} HOURS")
    assert len(table.records()) == 2
    assert isinstance(commit(sink, piece)[0], outcome)


def test_an_undecided_piece_whose_records_somebody_deletes_is_gone_and_vacuum_takes_its_files(
    table: DeltaHarness,
) -> None:
    """As docs/by-hand.md says."""
    sink = table.opened()
    table.write(sink, range(3))
    for record in (table.folder / "_twophase").rglob("*-*.*"):
        record.unlink()
    assert table.records() == []
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    with changed(table.spark, {check: "false"}):
        table.sql("VACUUM {table} RETAIN 0 HOURS")
    assert table.data_files() == []
    again = table.opened(Attempt(2, 1))
    assert list(again.in_doubt()) == []
    piece = table.write(again, range(4), attempt=Attempt(2, 1))
    assert commit(again, piece) == [Committed()]
    assert table.ids() == [0, 1, 2, 3]


def test_a_changed_manifest_is_lost(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    [manifest] = (table.folder / "_twophase").rglob("*.manifest")
    text = manifest.read_text()
    for checksum in manifest.parent.glob(".*.crc"):
        checksum.unlink()
    assert "numRecords" in text
    manifest.write_text(text.replace("numRecords", "numrecords"))
    assert isinstance(commit(sink, piece)[0], Lost)
    assert table.ids() == []


def recreate(table: DeltaHarness) -> None:
    shutil.rmtree(table.folder)
    table.make_table()


def remove(table: DeltaHarness) -> None:
    shutil.rmtree(table.folder)


@pytest.mark.parametrize("change", [recreate, remove])
def test_a_table_that_was_recreated_or_removed_gets_nothing(
    table: DeltaHarness, change: Callable[[DeltaHarness], None], tmp_path: Path
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    shutil.copytree(table.folder, tmp_path / "backup")
    change(table)
    for action in (lambda: commit(sink, piece), lambda: sink.fence(Attempt(1, 2)), sink.history):
        with pytest.raises(TargetChangedError):
            action()
    with pytest.raises(TargetChangedError):
        table.write(sink, range(3), 1)
    shutil.rmtree(table.folder, ignore_errors=True)
    shutil.copytree(tmp_path / "backup", table.folder)
    clear_cache(table)
    assert commit(table.opened(Attempt(1, 2)), piece) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_a_new_driver_does_not_commit_to_a_table_that_was_recreated(table: DeltaHarness) -> None:
    piece = table.write(table.opened(), range(3))
    recreate(table)
    with pytest.raises(TargetChangedError):
        commit(table.opened(Attempt(2, 1)), piece)
    assert table.ids() == []


def test_an_older_copy_of_the_table_stops_the_job(table: DeltaHarness, tmp_path: Path) -> None:
    sink = table.opened()
    commit(sink, table.write(sink, [0], 0))
    log = table.folder / "_delta_log"
    shutil.copytree(log, tmp_path / "copy")
    commit(sink, table.write(sink, [1], 1))
    piece = table.write(sink, [2], 2)
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "copy", log)
    with pytest.raises(StopJobError, match="an older copy of the table was restored"):
        commit(table.opened(attempt=None), piece)


def test_a_commit_that_a_foreign_writer_replaced_is_missed_by_the_next_and_theirs_by_nobody(
    table: DeltaHarness,
) -> None:
    """On a local disk both succeed with one version, and the second replaces the
    first one's commit.
    """
    sink = table.opened()
    first = table.write(sink, [0], 0)
    table.sql("INSERT INTO {table} VALUES (7, 'theirs', 0.5)")
    [*_, theirs] = sorted((table.folder / "_delta_log").glob("*.json"))
    replacing = theirs.read_bytes()
    unlog(table, theirs)
    assert commit(sink, first) == [Committed()]
    assert table.ids() == [0], "nothing says that a row of somebody else was there"

    unlog(table, theirs)
    theirs.write_bytes(replacing)
    again = table.opened(Attempt(2, 1))
    second = table.write(again, [1], 1, Attempt(2, 1))
    with pytest.raises(
        TargetChangedError,
        match=r"checkpoint 0 of lineage .* the target no longer has proof of that",
    ):
        again.commit([CommitRequest(second, predecessor=Predecessor(first.transaction.lineage, 0))])
    assert table.ids() == [7]


def unlog(table: DeltaHarness, commit: Path) -> None:
    """The commit is not in the log any more, and no session remembers it."""
    commit.unlink()
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    commit.with_suffix(".crc").unlink(missing_ok=True)
    clear_cache(table)


def clear_cache(table: DeltaHarness) -> None:
    """No session remembers the table's log."""
    jvm = table.spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.mark.parametrize(
    ("statement", "named", "undo"),
    [
        (
            "DROP COLUMN amount",
            "'amount' was dropped or renamed",
            "RESTORE TABLE {table} TO VERSION AS OF 1",
        ),
        (
            "RENAME COLUMN amount TO price",
            "'amount' was dropped or renamed",
            "ALTER TABLE {table} RENAME COLUMN price TO amount",
        ),
        (
            "ADD CONSTRAINT cheap CHECK (amount < 1)",
            "delta.constraints.cheap",
            "ALTER TABLE {table} DROP CONSTRAINT cheap",
        ),
    ],
    ids=["drop", "rename", "constraint"],
)
def test_a_change_that_the_files_do_not_fit_stops_the_job_and_undone_lets_it_go_on(
    delta_spark: SparkSession, tmp_path: Path, statement: str, named: str, undo: str
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", more=MAPPED)
    sink = table.opened()
    piece = table.write(sink, range(3))
    table.sql(f"ALTER TABLE {{table}} {statement}")
    with pytest.raises(StopJobError, match=named):
        commit(sink, piece)
    table.sql(undo)
    assert commit(table.opened(Attempt(2, 1)), piece) == [Committed()]
    assert table.ids() == [0, 1, 2]


@pytest.mark.parametrize("way", ["the change is undone", "the rows are changed"])
def test_rows_that_no_longer_fit_stop_the_job_until_they_fit_again(
    delta_spark: SparkSession, tmp_path: Path, way: str
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", more=MAPPED)
    sink = table.opened()
    table.sql("ALTER TABLE {table} RENAME COLUMN amount TO price")
    with pytest.raises(StopJobError, match=r"no longer fit it: .*'amount'"):
        table.write(sink, range(3))
    rows = table.frame(table.rows(range(3)))
    if way == "the change is undone":
        table.sql("ALTER TABLE {table} RENAME COLUMN price TO amount")
    else:
        rows = rows.withColumnRenamed("amount", "price")
        table.fields = table.fields.set(2, table.fields.field(2).with_name("price"))
    again = table.opened(Attempt(2, 1))
    [piece] = again.pre_commit(rows, transaction_id(0, Attempt(2, 1)))
    assert commit(again, piece) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_a_nullable_column_that_was_added_in_between_is_null_in_the_rows(
    table: DeltaHarness,
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    table.sql("ALTER TABLE {table} ADD COLUMNS (note STRING)")
    assert commit(sink, piece) == [Committed()]
    assert [row["note"] for row in table.rows_visible()] == [None, None, None]
