"""Phase 2 of the Delta sink on a real table: what others do to the table in between, and what the sink makes of it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration.delta_harness import DeltaHarness, commit
from sinks.delta import committer
from twophase.errors import StopJobError, TargetChangedError
from twophase.failpoints import FailpointError
from twophase.ids import Attempt
from twophase.protocol.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.testing.harness import LINEAGE, transaction_id

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(delta_spark, tmp_path / "orders")


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    """Do something when the commit reaches a crash point, once."""

    def arrange(point: str, action: Callable[[], None]) -> None:
        pending = [action]

        def failpoint(name: str) -> None:
            if name == point and pending:
                pending.pop()()

        monkeypatch.setattr(committer, "failpoint", failpoint)

    return arrange


# -- concurrent writers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("INSERT INTO {table} VALUES (100, 'theirs', 1)", [0, 1, 2, 3, 4, 5, 100]),
        ("DELETE FROM {table} WHERE id = 1", [0, 2, 3, 4, 5]),
        ("UPDATE {table} SET id = 11 WHERE id = 1", [0, 2, 3, 4, 5, 11]),
        ("OPTIMIZE {table}", [0, 1, 2, 3, 4, 5]),
        (
            "ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 60 days')",
            [0, 1, 2, 3, 4, 5],
        ),
    ],
    ids=["append", "delete", "update", "optimize", "property"],
)
@pytest.mark.parametrize("when", ["between the phases", "within the commit"])
def test_a_concurrent_writer_does_not_stop_the_commit(
    table: DeltaHarness, at_point: Any, statement: str, left: list[int], when: str
) -> None:
    sink = table.opened()
    assert commit(sink, table.write(sink, [0], 0)) == [Committed()]
    assert commit(sink, table.write(sink, [1, 2], 1)) == [Committed()]
    piece = table.write(sink, [3, 4, 5], 2)
    if when == "between the phases":
        table.sql(statement)
    else:
        at_point("D01", lambda: table.sql(statement))
    outcomes = commit(sink, piece)
    if isinstance(outcomes[0], RetryLater):
        outcomes = commit(sink, piece, retries=1)
    assert outcomes == [Committed()]
    assert table.ids() == left


def test_of_two_drivers_that_commit_one_piece_at_once_one_does(table: DeltaHarness, at_point: Any) -> None:
    first, second = table.opened(), table.opened(attempt=None)
    piece = table.write(first, range(3))
    theirs: list[Any] = []
    at_point("D01", lambda: theirs.extend(commit(second, piece)))
    [ours] = commit(first, piece)
    assert theirs == [Committed()]
    assert isinstance(ours, RetryLater)
    assert "ConcurrentTransaction" in ours.reason
    assert isinstance(commit(first, piece, retries=1)[0], AlreadyCommitted)
    assert table.ids() == [0, 1, 2]


def test_a_reader_sees_whole_checkpoints_only(table: DeltaHarness) -> None:
    sink = table.opened()
    seen: list[int] = []
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            seen.append(len(table.rows_visible()))

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        for checkpoint in range(4):
            ids = range(10 * checkpoint, 10 * checkpoint + 10)
            assert commit(sink, table.write(sink, ids, checkpoint)) == [Committed()]
    finally:
        done.set()
        reader.join()
    assert seen == sorted(seen)
    assert {count % 10 for count in seen} == {0}


# -- lost replies and proof ------------------------------------------------------------------------------------------


def raising() -> None:
    raise FailpointError("the reply is lost")


def test_a_lost_reply_is_settled_by_the_log(table: DeltaHarness, at_point: Any) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    at_point("D02", raising)
    assert isinstance(commit(sink, piece)[0], RetryLater)
    assert isinstance(commit(sink, piece, retries=1)[0], AlreadyCommitted)
    assert table.ids() == [0, 1, 2]
    assert table.records() == []


def test_another_driver_settles_a_lost_reply_and_finds_nothing_in_doubt(table: DeltaHarness, at_point: Any) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    at_point("D02", raising)
    commit(sink, piece)
    again = table.opened(Attempt(2, 1))
    assert again.in_doubt() == []
    assert len(table.records()) == 2
    assert isinstance(commit(again, piece)[0], AlreadyCommitted)
    assert table.records() == []
    assert table.ids() == [0, 1, 2]


def test_an_error_before_the_commit_is_tried_again(table: DeltaHarness, at_point: Any) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    at_point("D01", raising)
    assert isinstance(commit(sink, piece)[0], RetryLater)
    assert table.ids() == []
    assert commit(sink, piece, retries=1) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_a_commit_that_another_process_replaced_is_not_called_committed(table: DeltaHarness, at_point: Any) -> None:
    """On a local disk two processes can write one version; the log that is there decides, not that Delta said OK."""
    sink = table.opened()
    piece = table.write(sink, range(3))

    def replace() -> None:
        newest = max((table.folder / "_delta_log").glob("*.json"))
        newest.write_text('{"commitInfo":{"operation":"another process"}}\n')

    at_point("D02", replace)
    [outcome] = commit(sink, piece)
    assert isinstance(outcome, RetryLater)
    assert "not the one that was written" in outcome.reason


def test_the_commit_says_whose_it_is_and_of_which_offsets(table: DeltaHarness) -> None:
    sink = table.opened()
    commit(sink, table.write(sink, range(3), 7))
    fence, note = table.notes()
    assert fence["fence"] == "1.1"
    assert (note["job"], note["sink"], note["lineage"], note["checkpoint"]) == ("contract", "facts", LINEAGE, 7)
    assert (note["attempt"], note["rows"]) == ("1.1", 3)
    assert note["offsets_sha256"] == transaction_id(7).offsets_hash
    info, *actions = table.commits()[-1]
    assert info["commitInfo"]["isBlindAppend"] is True
    assert [action["txn"]["version"] for action in actions if "txn" in action] == [7]


def test_an_empty_checkpoint_commits_nothing_and_leaves_nothing(table: DeltaHarness) -> None:
    sink = table.opened()
    before = len(table.commits())
    assert sink.pre_commit(table.frame([]), transaction_id(0)) == []
    assert (sink.in_doubt(), table.records(), len(table.commits())) == ([], [], before)
    assert commit(sink, table.write(sink, range(3), 1)) == [Committed()]
    assert sink.history().committed == {LINEAGE: 1}


def test_a_checkpoint_that_the_table_has_is_not_written_again(table: DeltaHarness) -> None:
    sink = table.opened()
    commit(sink, table.write(sink, range(3), 4))
    with pytest.raises(StopJobError, match="has checkpoint 4 of its lineage already"):
        table.write(sink, range(3), 4)
    assert table.records() == []


# -- what was lost or changed ----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("retain", "outcome"), [("168", Committed), ("0", Lost)], ids=["default", "nothing kept"])
def test_vacuum_between_the_phases(table: DeltaHarness, retain: str, outcome: type) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    table.spark.conf.set(check, "false")
    try:
        table.sql(f"VACUUM {{table}} RETAIN {retain} HOURS")
    finally:
        table.spark.conf.unset(check)
    assert len(table.records()) == 2
    assert isinstance(commit(sink, piece)[0], outcome)


def test_a_changed_manifest_is_lost(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    [manifest] = (table.folder / "_twophase").rglob("*.manifest")
    text = manifest.read_text()
    for checksum in manifest.parent.glob(".*.crc"):
        checksum.unlink()
    manifest.write_text(text.replace('numRecords\\":3', 'numRecords\\":4'))
    assert isinstance(commit(sink, piece)[0], Lost)
    assert table.ids() == []


def recreate(table: DeltaHarness) -> None:
    shutil.rmtree(table.folder)
    table.make_table()


def remove(table: DeltaHarness) -> None:
    shutil.rmtree(table.folder)


@pytest.mark.parametrize("change", [recreate, remove])
def test_a_table_that_was_made_anew_or_removed_gets_nothing(
    table: DeltaHarness, change: Callable[[DeltaHarness], None]
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    change(table)
    for action in (lambda: commit(sink, piece), lambda: sink.fence(Attempt(1, 2)), sink.history):
        with pytest.raises(TargetChangedError):
            action()
    with pytest.raises(TargetChangedError):
        table.write(sink, range(3), 1)


def test_a_new_driver_does_not_commit_to_a_table_that_was_made_anew(table: DeltaHarness) -> None:
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
    with pytest.raises(StopJobError, match="an older copy of the table was put back"):
        commit(table.opened(attempt=None), piece)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("ALTER TABLE {table} DROP COLUMN amount", "'amount' was dropped or renamed"),
        ("ALTER TABLE {table} RENAME COLUMN amount TO price", "'amount' was dropped or renamed"),
        ("ALTER TABLE {table} ALTER COLUMN amount SET NOT NULL", "'amount' was nullable and is not"),
        ("ALTER TABLE {table} ADD CONSTRAINT cheap CHECK (amount < 1)", "delta.constraints.cheap"),
    ],
    ids=["drop", "rename", "not null", "constraint"],
)
def test_a_change_that_the_files_do_not_fit_stops_the_job_and_undone_lets_it_go_on(
    delta_spark: SparkSession, tmp_path: Path, statement: str, named: str
) -> None:
    table = DeltaHarness(delta_spark, tmp_path / "orders", more=MAPPED)
    sink = table.opened()
    piece = table.write(sink, range(3))
    before = len(table.commits()) - 1
    table.sql(statement)
    with pytest.raises(StopJobError, match=named):
        commit(sink, piece)
    assert table.ids() == []
    table.sql(f"RESTORE TABLE {{table}} TO VERSION AS OF {before}")
    assert commit(table.opened(Attempt(2, 1)), piece) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_a_nullable_column_that_was_added_in_between_is_null_in_the_rows(table: DeltaHarness) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    table.sql("ALTER TABLE {table} ADD COLUMNS (note STRING)")
    assert commit(sink, piece) == [Committed()]
    assert [row["note"] for row in table.rows_visible()] == [None, None, None]
