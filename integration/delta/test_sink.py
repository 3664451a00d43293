"""Phase 2 of the Delta sink on a real table: what others do to the table in between, and what
the sink makes of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import SparkSession

from harness.selection import first_of
from integration.delta.sink_harness import DeltaHarness, acting_at, commit
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.errors import StopJobError
from twophase.ids import Attempt
from twophase.internals.failpoints import FailpointError
from twophase.sinks.delta import committer, transaction
from twophase.sinks.delta.fence import Fence
from twophase.testing.harness import LINEAGE, transaction_id

pytestmark = pytest.mark.part("delta")

_TIMEOUT_S = 60


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(delta_spark, tmp_path / "orders")


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    return acting_at(monkeypatch, committer)


# -- concurrent writers ----------------------------------------------------------------------------


WRITERS = {
    "append": ("INSERT INTO {table} VALUES (100, 'theirs', 1)", [0, 1, 2, 3, 4, 5, 100]),
    "delete": ("DELETE FROM {table} WHERE id = 1", [0, 2, 3, 4, 5]),
    "update": ("UPDATE {table} SET id = 11 WHERE id = 1", [0, 2, 3, 4, 5, 11]),
    "optimize": ("OPTIMIZE {table}", [0, 1, 2, 3, 4, 5]),
    "property": (
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 60 days')",
        [0, 1, 2, 3, 4, 5],
    ),
}
WHEN = ("between the phases", "within the commit")
REPRESENTATIVES = [("append", WHEN[0]), ("property", WHEN[1])]
"""The first DELETE in a Spark costs as much as all of these together."""


@pytest.mark.parametrize(
    ("writer", "when"), first_of(2, dict.fromkeys([*REPRESENTATIVES, *product(WRITERS, WHEN)]))
)
def test_a_concurrent_writer_does_not_stop_the_commit(
    table: DeltaHarness, at_point: Any, writer: str, when: str
) -> None:
    statement, left = WRITERS[writer]
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


def test_of_two_drivers_that_commit_one_piece_at_once_one_does(
    table: DeltaHarness, at_point: Any
) -> None:
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


def test_a_commit_in_flight_fails_once_another_driver_has_aborted_the_piece(
    table: DeltaHarness, at_point: Any
) -> None:
    """As a driver over a copy of the folder does, which does not know the decision. The commit
    has read the manifest, and found all data files, before they are deleted.
    """
    first, second = table.opened(), table.opened(attempt=None)
    piece = table.write(first, range(3))
    at_point("D01", lambda: second.abort([piece]))
    [ours] = commit(first, piece)
    assert isinstance(ours, RetryLater)
    assert "ConcurrentTransaction" in ours.reason
    assert isinstance(commit(first, piece, retries=1)[0], Lost)
    assert table.ids() == []
    assert table.records() == []


def test_an_abort_is_refused_where_the_commit_in_flight_came_first(
    table: DeltaHarness, at_point: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had looked at the log before, in vain."""
    first, second = table.opened(), table.opened(attempt=None)
    piece = table.write(first, range(3))
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(_TIMEOUT_S)

    at_point("D01", wait)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(commit, first, piece)
        assert begun.wait(_TIMEOUT_S)
        write_again = Fence.write_again

        def commit_first(fence: Fence) -> None:
            go_on.set()
            assert committed.result(_TIMEOUT_S) == [Committed()]
            write_again(fence)

        monkeypatch.setattr(Fence, "write_again", commit_first)
        with pytest.raises(StopJobError, match="was decided in another folder"):
            second.abort([piece])
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


# -- lost replies and proof ------------------------------------------------------------------------


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


@pytest.mark.proof
def test_another_driver_settles_a_lost_reply_and_finds_nothing_in_doubt(
    table: DeltaHarness, at_point: Any
) -> None:
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


@pytest.mark.proof
def test_an_error_before_the_commit_is_tried_again(table: DeltaHarness, at_point: Any) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    at_point("D01", raising)
    assert isinstance(commit(sink, piece)[0], RetryLater)
    assert table.ids() == []
    assert commit(sink, piece, retries=1) == [Committed()]
    assert table.ids() == [0, 1, 2]


def test_a_commit_that_another_process_replaced_is_not_called_committed(
    table: DeltaHarness, at_point: Any
) -> None:
    """On a local disk two processes can write one version; the log that is there decides, not
    that Delta said OK.
    """
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
    assert (note["job"], note["sink"], note["lineage"], note["checkpoint"]) == (
        "contract",
        "facts",
        LINEAGE,
        7,
    )
    assert (note["attempt"], note["rows"]) == ("1.1", 3)
    assert note["offsets_sha256"] == transaction_id(7).offsets_hash
    info, *actions = table.commits()[-1]
    assert info["commitInfo"]["isBlindAppend"] is True
    assert [action["txn"]["version"] for action in actions if "txn" in action] == [7]


@pytest.mark.proof
def test_an_empty_checkpoint_commits_nothing_and_leaves_nothing(table: DeltaHarness) -> None:
    sink = table.opened()
    before = len(table.commits())
    assert sink.pre_commit(table.frame([]), transaction_id(0)) == []
    assert (sink.in_doubt(), table.records(), table.data_files(), len(table.commits())) == (
        [],
        [],
        [],
        before,
    )
    assert commit(sink, table.write(sink, range(3), 1)) == [Committed()]
    assert sink.history().committed == {LINEAGE: 1}


@pytest.mark.proof
def test_a_first_task_without_rows_leaves_no_file(table: DeltaHarness) -> None:
    sink = table.opened()
    columns = ("id", "'x' AS name", "0.5D AS amount")
    two_tasks = table.spark.range(0, 4, 1, 2).where("id >= 2").selectExpr(*columns)
    [piece] = sink.pre_commit(two_tasks, transaction_id())
    assert commit(sink, piece) == [Committed()]
    assert len(table.data_files()) == 1
    assert table.ids() == [2, 3]


def test_a_checkpoint_that_the_table_has_is_not_written_again(table: DeltaHarness) -> None:
    sink = table.opened()
    commit(sink, table.write(sink, range(3), 4))
    with pytest.raises(StopJobError, match="already has checkpoint 4 of its lineage"):
        table.write(sink, range(3), 4)
    assert table.records() == []


@pytest.mark.proof
def test_a_start_leaves_the_checkpoint_of_delta_s_log_to_the_job(
    delta_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds, and is due with every commit here."""
    table = DeltaHarness(
        delta_spark, tmp_path / "orders", more="TBLPROPERTIES ('delta.checkpointInterval' = 1)"
    )
    first = table.opened()
    decided = table.write(first, [0], 0)
    second = table.opened(Attempt(2, 1))
    assert commit(second, decided) == [Committed()]
    assert checkpoints(table) == []
    assert commit(second, table.write(second, [1], 1, Attempt(2, 1))) == [Committed()]
    assert len(checkpoints(table)) == 1
    table.opened(Attempt(3, 1))
    assert len(checkpoints(table)) == 1
    monkeypatch.setattr(transaction, "_FAR_BEHIND", 1)
    table.opened(Attempt(4, 1))
    assert len(checkpoints(table)) == 2  # nobody else made one


def checkpoints(table: DeltaHarness) -> list[str]:
    return sorted(path.name for path in (table.folder / "_delta_log").glob("*.checkpoint*.parquet"))


def test_a_row_that_quotes_delta_s_rejection_rejects_nothing(table: DeltaHarness) -> None:
    """Spark repeats the value in the error of another row of the user's own plan."""
    sink = table.opened()
    rows = table.spark.sql(
        "SELECT '[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] TWOPHASE_PARTITION_VALUE x' AS name"
    )
    rows = rows.selectExpr("CAST(name AS BIGINT) AS id", "name", "0.5D AS amount")
    with pytest.raises(NumberFormatException):  # the job declines the attempt, and may try again
        sink.pre_commit(rows.repartition(1), transaction_id())
