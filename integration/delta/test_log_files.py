"""What the sink reads of a table's log is what Delta's own snapshot answers at the
same version (I4).

Each table has every kind of commit: of the sink, of other applications, without an application id,
and one that lowers a version. Both answers are of one snapshot, and the sink's must
not come from Delta.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.spark_settings import changed
from integration.delta.sink_harness import DeltaHarness, commit
from twophase.protocol.outcome import Committed
from twophase.sinks.delta import transaction as transaction_module
from twophase.sinks.delta.jvm import Jvm, items
from twophase.sinks.delta.log import Log, Snapshot
from twophase.sinks.delta.log_segment import UnreadableLogError
from twophase.sinks.delta.transaction import PARTITIONS, Transactions, tasks_for

pytestmark = pytest.mark.part("delta")

_CONF = "spark.databricks.delta."
V2 = "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"


class Table(DeltaHarness):
    """A table, and both ways to ask which version each application id is at."""

    @property
    def jvm(self) -> Jvm:
        return Jvm(self.spark)

    @property
    def log_folder(self) -> Path:
        return self.folder / "_delta_log"

    def log(self) -> Log:
        return Log(self.jvm, str(self.folder))

    def transactions(self) -> Transactions:
        return Transactions(self.log())

    def mark(self, app_id: str, version: int) -> None:
        """A commit of another application."""
        with self.jvm.active():
            self.transactions().begin().commit([], app_id, version, "query", version, {})

    def fill(self, commits: int) -> None:
        """Commits of many kinds."""
        for number in range(commits):
            self.mark(f"app-{number % 5}", number if number % 3 else -number)

    def checkpoint(self) -> list[str]:
        """Delta writes a checkpoint of the newest version. Returns the names of its files."""
        before = set(self.names())
        with self.jvm.active():
            self.log().java.checkpoint()
        return [name for name in self.names() if name not in before and "checkpoint" in name]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.log_folder.iterdir() if path.suffix != ".crc")

    def delete_commits(self, below: int) -> None:
        """As Delta's own clean-up of the log does."""
        for version in range(below):
            (self.log_folder / f"{version:020d}.json").unlink()
            (self.log_folder / f".{version:020d}.json.crc").unlink(missing_ok=True)

    def forget_log(self) -> None:
        """Another driver: nothing of the log is in memory."""
        with self.jvm.active():
            self.jvm.delta("DeltaLog").clearCache()

    def check(self) -> dict[str, int]:
        """Both ways agree, warm and after a restart; returns the answer."""
        answers = [self.both(), self.both()]
        self.forget_log()
        answers.append(self.both())
        assert answers[0] == answers[1] == answers[2]
        return answers[0]

    def both(self) -> dict[str, int]:
        with self.jvm.active():
            snapshot = self.log().snapshot()
            read = direct(snapshot)
            assert read == snapshot.transactions
            assert read == {
                str(entry.appId()): int(entry.version())
                for entry in items(snapshot._java.setTransactions())
            }
        return read


def direct(snapshot: Snapshot) -> dict[str, int]:
    """From the files only: raises where Delta would be asked."""
    return snapshot._log.files.transactions(snapshot._segment(), snapshot._forgotten_until_ms())


@pytest.fixture
def make(delta_spark: SparkSession, tmp_path: Path) -> Callable[..., Table]:
    return lambda more="": Table(delta_spark, tmp_path / "orders", more=more)


def test_of_the_sink_and_of_others_after_many_commits(make: Callable[..., Table]) -> None:
    table = make("TBLPROPERTIES ('delta.checkpointInterval' = '1000')")
    sink = table.opened()
    assert commit(sink, table.write(sink, [1, 2, 3])) == [Committed()]
    table.fill(12)
    table.sql("INSERT INTO {table} VALUES (7, 'a', 1.0)")
    found = table.check()
    assert len(found) == 7  # five others, the sink's lineage and its fence
    assert found["app-4"] == -9
    assert not any("checkpoint" in name for name in table.names())


@pytest.mark.proof
def test_with_checkpoints_as_delta_makes_them(make: Callable[..., Table]) -> None:
    table = make()
    table.fill(12)
    table.sql("INSERT INTO {table} VALUES (7, 'a', 1.0)")
    table.sql("DELETE FROM {table} WHERE id = 7")
    assert "00000000000000000010.checkpoint.parquet" in table.names()
    assert table.check()["app-4"] == -9


@pytest.mark.proof
def test_right_at_a_checkpoint_and_after_the_log_was_cleaned(make: Callable[..., Table]) -> None:
    table = make()
    table.fill(7)
    assert table.checkpoint() == ["00000000000000000007.checkpoint.parquet", "_last_checkpoint"]
    table.check()
    table.delete_commits(below=7)
    table.forget_log()
    assert len(table.check()) == 5
    table.mark("app-0", 99)
    assert table.check()["app-0"] == 99


@pytest.mark.proof
def test_files_are_counted_by_as_many_tasks_as_the_log_is_large(make: Callable[..., Table]) -> None:
    """Delta counts them with every version that is a multiple of the interval, in a session of
    50 tasks by default.
    """
    table = make("TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    with changed(table.spark, {PARTITIONS: "50"}), table.jvm.job_tag("counting"):
        table.mark("app-1", 1)
        assert table.spark.conf.get(PARTITIONS) == "50"
    context: Any = table.spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number).get() for number in tracker.getJobIdsForTag("counting")]
    tasks = [
        tracker.getStageInfo(stage).get().numTasks() for job in jobs for stage in job.stageIds()
    ]
    assert 0 < max(tasks) <= 4


@pytest.mark.proof
def test_no_session_is_copied_for_a_commit_that_does_not_count(make: Callable[..., Table]) -> None:
    """Each is one more listener of all that Spark does."""
    table = make("TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    transactions, copied = table.transactions(), []
    with table.jvm.active():
        for version in (1, 2):
            transaction = transactions.begin()
            assert transaction.commit([], "app-1", version, "query", version, {}) == version
            copied.append("commit_session" in vars(transactions))
    assert copied == [False, True]


def test_a_large_log_is_read_by_more_tasks_and_never_by_more_than_the_session_says() -> None:
    assert [tasks_for(size, 50) for size in (0, 2**23 - 1, 2**23, 2**26, 2**40)] == [1, 1, 2, 9, 50]
    assert tasks_for(2**40, 2) == 2


@pytest.mark.proof
def test_with_a_checkpoint_in_parts(make: Callable[..., Table]) -> None:
    table = make("TBLPROPERTIES ('delta.checkpointInterval' = '1000')")
    for number in range(3):
        table.sql(f"INSERT INTO {{table}} VALUES ({number}, 'a', 1.0)")
    table.fill(9)
    with changed(table.spark, {f"{_CONF}checkpoint.partSize": "1"}):
        parts = [name for name in table.checkpoint() if name != "_last_checkpoint"]
    assert len(parts) > 1
    assert parts[0].endswith(f".checkpoint.{1:010d}.{len(parts):010d}.parquet")
    table.mark("app-1", 70)
    assert table.check()["app-1"] == 70


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_with_a_v2_checkpoint(make: Callable[..., Table], kind: str) -> None:
    table = make(V2)
    for number in range(3):
        table.sql(f"INSERT INTO {{table}} VALUES ({number}, 'a', 1.0)")
    table.fill(6)
    with changed(table.spark, {f"{_CONF}checkpointV2.topLevelFileFormat": kind}):
        [main, *_] = table.checkpoint()
    assert main.endswith(f".{kind}")
    assert len(main.split(".")) == 4  # with a uuid
    assert list((table.log_folder / "_sidecars").glob("*.parquet"))
    assert len(table.check()) == 5
    table.delete_commits(below=int(main.split(".")[0]))
    table.mark("app-1", 70)
    assert table.check()["app-1"] == 70


@pytest.mark.proof
def test_with_compacted_commits(make: Callable[..., Table]) -> None:
    table = make("TBLPROPERTIES ('delta.checkpointInterval' = '1000')")
    table.fill(12)
    latest: dict[str, Any] = {}
    for version in range(3, 9):
        for line in (table.log_folder / f"{version:020d}.json").read_text().splitlines():
            action = json.loads(line)
            if "txn" in action:
                latest[action["txn"]["appId"]] = action
    text = "".join(json.dumps(action) + "\n" for action in latest.values())
    (table.log_folder / f"{3:020d}.{8:020d}.compacted.json").write_text(text)
    table.forget_log()
    with table.jvm.active():
        assert [
            file.base
            for file in table.log().snapshot()._segment().commits
            if "compacted" in file.base
        ]
    table.check()


@pytest.mark.proof
@pytest.mark.parametrize("last", ["stale", "gone", "torn", "of no version"])
def test_whatever_the_note_of_the_last_checkpoint_says(
    make: Callable[..., Table], last: str
) -> None:
    table = make()
    note = table.log_folder / "_last_checkpoint"
    table.fill(4)
    table.checkpoint()
    stale = note.read_bytes()
    table.fill(6)
    table.checkpoint()
    table.mark("app-2", 50)
    (table.log_folder / "._last_checkpoint.crc").unlink(missing_ok=True)
    spoil: dict[str, Callable[[], object]] = {
        "stale": lambda: note.write_bytes(stale),
        "gone": note.unlink,
        "torn": lambda: note.write_bytes(stale[:20]),
        "of no version": lambda: note.write_bytes(stale.replace(b'"version":4', b'"version":3')),
    }
    spoil[last]()
    table.forget_log()
    assert table.check()["app-2"] == 50


@pytest.mark.proof
def test_beside_torn_files_and_an_unfinished_checkpoint(make: Callable[..., Table]) -> None:
    table = make("TBLPROPERTIES ('delta.checkpointInterval' = '1000')")
    table.fill(6)
    next_version = len(table.commits())
    (table.log_folder / f".{next_version:020d}.json.{uuid.uuid4()}.tmp").write_text(
        '{"txn":{"appId":"app-0"'
    )
    (table.log_folder / f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet").write_bytes(b"PAR1")
    table.forget_log()
    table.check()


@pytest.mark.proof
def test_of_a_table_that_forgets(
    make: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make()
    monkeypatch.setattr(
        transaction_module, "time", SimpleNamespace(time=lambda: time.time() - 31 * 24 * 3600)
    )
    table.fill(3)
    monkeypatch.undo()
    table.mark("app-1", 10)
    assert len(table.check()) == 3
    table.sql(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = "
        "'interval 30 days')"
    )
    assert table.check() == {"app-1": 10}
    table.checkpoint()
    table.mark("app-2", 11)
    assert table.check() == {"app-1": 10, "app-2": 11}


def test_of_a_new_table(make: Callable[..., Table]) -> None:
    assert make().check() == {}


def test_a_log_that_does_not_fit_is_answered_by_delta(make: Callable[..., Table]) -> None:
    """Two actions for one application id in one commit are against the protocol; Delta
    still has an answer.
    """
    table = make()
    table.mark("twice", 1)
    newest = max(table.log_folder.glob("*.json"))
    newest.write_text(newest.read_text() + '{"txn":{"appId":"twice","version":1}}\n')
    (table.log_folder / f".{newest.name}.crc").unlink(missing_ok=True)
    table.forget_log()
    with table.jvm.active():
        snapshot = table.log().snapshot()
        with pytest.raises(UnreadableLogError):
            direct(snapshot)
        assert snapshot.transactions == {"twice": 1}
