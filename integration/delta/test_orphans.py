"""Pieces that were never decided: found on the table, removed whole, and nothing of
anybody else with them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration.delta.sink_harness import DeltaHarness, acting_at, commit
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.errors import FencedError, RejectedRowsError, StopJobError
from twophase.ids import Attempt
from twophase.internals.failpoints import FailpointError
from twophase.sinks.delta import staging
from twophase.sinks.delta.names import Owner, data_prefix
from twophase.sinks.delta.sink import OpenDeltaSink
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

NEXT = Attempt(1, 2)
# Spark tells an attempt's failed tasks by the attempt's name, also those of tests before:
# the Spark is shared.
OF_NO_OTHER_TEST = Attempt(1, 77)


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(delta_spark, tmp_path / "orders")


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    return acting_at(monkeypatch, staging)


def dying() -> None:
    raise FailpointError("the driver died here")


def left_behind(
    table: DeltaHarness, at_point: Any, point: str, ids: range = range(5)
) -> OpenDeltaSink:
    """A sink whose driver died in phase 1."""
    sink = table.opened()
    at_point(point, dying)
    with pytest.raises(FailpointError):
        table.write(sink, ids)
    return sink


def close(sink: OpenDeltaSink, below: Attempt) -> None:
    """What recovery does (coordinator/commit/orphans.py)."""
    sink.abort([piece for piece in sink.in_doubt() if piece.transaction.attempt < below])
    sink.fence(below)
    sink.abort([piece for piece in sink.in_doubt() if piece.transaction.attempt < below])


@pytest.mark.parametrize(
    "more", ["", "PARTITIONED BY (name)", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"]
)
def test_data_files_in_no_list_are_found_by_their_name(
    delta_spark: SparkSession, tmp_path: Path, at_point: Any, more: str
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "a strange [name] {x,y} *?", more=more)
    before = table.data_files()
    sink = left_behind(table, at_point, "C05")
    assert len(table.data_files()) > len(before)
    [piece] = table.opened(attempt=None).in_doubt()
    assert (piece.transaction, piece.rows) == (transaction_id(), 0)
    close(sink, NEXT)
    assert table.data_files() == before
    assert (table.records(), sink.in_doubt()) == ([], [])


def test_an_attempt_that_died_before_its_first_file_leaves_nothing(
    table: DeltaHarness, at_point: Any
) -> None:
    sink = left_behind(table, at_point, "C04")
    assert len(sink.in_doubt()) == 1
    close(sink, NEXT)
    assert (table.records(), table.data_files()) == ([], [])


@pytest.mark.parametrize("kind", ["intent", "manifest"])
def test_a_torn_record_is_in_doubt_and_goes(table: DeltaHarness, kind: str) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    [record] = (table.folder / "_twophase").rglob(f"*.{kind}")
    record.write_bytes(record.read_bytes()[:40])
    [found] = sink.in_doubt()
    assert (found.transaction.checkpoint, found.transaction.attempt) == (
        0,
        piece.transaction.attempt,
    )
    close(sink, NEXT)
    assert table.records() == []
    assert table.data_files() == []


def test_nothing_of_others_is_deleted(table: DeltaHarness, at_point: Any) -> None:
    """Rows of others, files that no commit names yet, pieces of another job, and of a
    checkpoint that is decided.
    """
    table.sql("INSERT INTO {table} VALUES (100, 'theirs', 1)")
    (table.folder / "part-00000-not-yet-committed.snappy.parquet").write_bytes(b"being written")
    other = table.new_sink().open(table.context(job="other"))
    other.fence(FIRST)
    [theirs] = other.pre_commit(table.frame(table.rows([200])), transaction_id(job="other"))
    sink = table.opened()
    decided = table.write(sink, range(3))
    kept = set(table.data_files())
    at_point("C05", dying)
    with pytest.raises(FailpointError):
        table.write(sink, range(3, 6), 1)
    found = [piece for piece in sink.in_doubt() if piece.transaction.checkpoint == 1]
    sink.abort(found)
    assert set(table.data_files()) == kept
    assert [*commit(sink, decided), *commit(other, theirs)] == [Committed(), Committed()]
    assert table.ids() == [0, 1, 2, 100, 200]


def test_a_committed_piece_cannot_be_aborted(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    saved = {
        path: path.read_bytes()
        for path in (table.folder / "_twophase").rglob("*")
        if path.is_file()
    }
    commit(sink, piece)
    for path, content in saved.items():  # as if the driver had died before it removed the records
        path.write_bytes(content)
    assert sink.in_doubt() == []
    with pytest.raises(StopJobError, match="names its files"):
        sink.abort([piece])
    assert table.ids() == [0, 1, 2]
    sink.subsume(piece.transaction.lineage, 0)
    assert table.records() == []


def cleaned(spark: SparkSession, folder: Path, more: str) -> tuple[DeltaHarness, Any, Any]:
    """A table whose log has lost the commits since a piece was written."""
    properties = f"TBLPROPERTIES ('delta.checkpointInterval' = '1'{more})"
    table = DeltaHarness(spark, folder / "orders", more=properties)
    sink = table.opened()
    piece = table.write(sink, range(3))
    for number in range(2):
        table.sql(f"INSERT INTO {{table}} VALUES ({100 + number}, 'theirs', 1)")
    for old in sorted((table.folder / "_delta_log").glob("*.json"))[:-1]:
        old.unlink()
    return table, sink, piece


def test_without_the_log_since_then_the_mark_proves_what_is_not_there(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table, sink, piece = cleaned(delta_spark, tmp_path, "")
    assert commit(sink, piece) == [Committed()]
    [again] = commit(sink, piece)
    assert isinstance(again, AlreadyCommitted)
    assert table.ids() == [0, 1, 2, 100, 101]
    assert table.records() == []


def test_without_the_log_and_marks_data_files_are_left_to_vacuum(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing proves any more that no version of the table names them."""
    forgets = ", 'delta.setTransactionRetentionDuration' = 'interval 30 days'"
    table, sink, piece = cleaned(delta_spark, tmp_path, forgets)
    files = table.data_files()
    with pytest.raises(StopJobError, match="cleaned of commits") as caught:
        commit(sink, piece)
    assert "accept-loss" in caught.value.remedy
    sink.abort([piece])
    assert table.data_files() == files
    assert table.records() == []


def test_files_of_task_attempts_that_lost_go_with_their_piece(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    [file] = table.data_files()
    shutil.copy(file, file.with_name(file.name.replace("part-00000", "part-00001")))
    sink.abort([piece])
    assert table.data_files() == []


@pytest.mark.parametrize("speculation", [True, False])
def test_files_of_task_attempts_that_lost_are_looked_for_where_there_may_be_some(
    table: DeltaHarness, speculation: bool
) -> None:
    sink = table.new_sink().open(table.context(speculation=speculation))
    sink.fence(OF_NO_OTHER_TEST)
    prefix = data_prefix(Owner(JOB, SINK), transaction_id(attempt=OF_NO_OTHER_TEST))
    loser = table.folder / f"{prefix}part-00001-copy.c000.snappy.parquet"
    loser.write_bytes(b"written by a second attempt")
    assert commit(sink, table.write(sink, range(3), attempt=OF_NO_OTHER_TEST)) == [Committed()]
    assert loser.exists() is not speculation
    assert table.ids() == [0, 1, 2]


def test_an_attempt_that_is_closed_while_it_writes_takes_its_files_away(
    table: DeltaHarness, at_point: Any
) -> None:
    sink, newer = table.opened(), table.opened(attempt=None)
    at_point("C05", lambda: newer.fence(Attempt(2, 1)))
    with pytest.raises(FencedError):
        table.write(sink, range(3))
    assert (newer.in_doubt(), table.records(), table.data_files()) == ([], [], [])


def test_what_was_listed_before_the_fence_is_found_by_the_scan_after_it(
    table: DeltaHarness,
) -> None:
    sink, newer = table.opened(), table.opened(attempt=None)
    table.write(sink, range(3))
    close(newer, Attempt(2, 1))
    assert (newer.in_doubt(), table.records(), table.data_files()) == ([], [], [])
    assert newer.history().generation == 2


def test_rejected_rows_decline_the_attempt_and_go(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders")
    table.sql("ALTER TABLE {table} ADD CONSTRAINT cheap CHECK (amount < 1)")
    sink = table.opened()
    with pytest.raises(RejectedRowsError, match="cheap"):
        table.write(sink, range(5))
    close(sink, NEXT)
    assert (table.ids(), table.records(), table.data_files()) == ([], [], [])
    assert commit(sink, table.write(sink, range(2), attempt=NEXT)) == [Committed()]


def test_two_sinks_that_write_side_by_side_in_one_session_name_their_own_files(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    tables = [DeltaHarness(delta_spark, tmp_path / f"orders-{number}") for number in range(2)]
    sinks = [table.opened() for table in tables]

    def write(number: int) -> None:
        for checkpoint in range(3):
            table, sink = tables[number], sinks[number]
            ids = range(10 * checkpoint + number, 10 * checkpoint + number + 2)
            assert commit(sink, table.write(sink, ids, checkpoint)) == [Committed()]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    assert [table.ids() for table in tables] == [[0, 1, 10, 11, 20, 21], [1, 2, 11, 12, 21, 22]]
