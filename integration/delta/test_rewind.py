"""A rewind of a real Delta table: one commit removes exactly the files that the checkpoints added,
or nothing is removed and the version that stands in the way is named.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.selection import first_of, representatives
from integration.delta.sink_harness import DeltaHarness, acting_at, commit
from twophase.contract.outcome import Committed
from twophase.errors import FencedError, RestoreRefusedError
from twophase.ids import Attempt
from twophase.internals.failpoints import FailpointError
from twophase.sinks.delta import rewind
from twophase.sinks.delta.sink import OpenDeltaSink
from twophase.testing.harness import LINEAGE, OTHER_LINEAGE, transaction_id

pytestmark = [pytest.mark.part("delta"), pytest.mark.thin(4)]

RESTORING = Attempt(2, 0)
KEEP = {LINEAGE: 0}


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return filled(DeltaHarness(delta_spark, tmp_path / "orders"))


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    return acting_at(monkeypatch, rewind)


def filled(table: DeltaHarness) -> DeltaHarness:
    """Three checkpoints of two rows."""
    sink = table.opened()
    for number in range(3):
        assert commit(sink, table.write(sink, [2 * number, 2 * number + 1], number)) == [
            Committed()
        ]
    return table


def rewound(
    table: DeltaHarness, keep: dict[str, int] | None = None, attempt: Attempt = RESTORING
) -> OpenDeltaSink:
    keep = KEEP if keep is None else keep
    sink = table.opened(None)
    sink.check_rewind(keep)
    sink.fence(attempt)
    sink.rewind(keep, attempt)
    return sink


def refused(table: DeltaHarness, message: str, keep: dict[str, int] | None = None) -> str:
    """Neither the check nor the rewind writes a commit; returns what is to be done."""
    keep = KEEP if keep is None else keep
    sink = table.opened(RESTORING)
    before, commits = table.rows_visible(), len(table.commits())
    for call in (lambda: sink.check_rewind(keep), lambda: sink.rewind(keep, RESTORING)):
        with pytest.raises(RestoreRefusedError, match=message) as caught:
            call()
    assert (table.rows_visible(), len(table.commits())) == (before, commits)
    assert sink.history().committed == {LINEAGE: 2}
    return caught.value.remedy


def test_one_commit_removes_the_files_and_lowers_the_mark(table: DeltaHarness) -> None:
    table.sql("INSERT INTO {table} VALUES (100, 'theirs', 1)")
    before = len(table.commits())
    sink = rewound(table)
    assert table.ids() == [0, 1, 100]
    fence, removal = table.commits()[before:]
    assert [name for action in removal for name in action] == [
        "commitInfo",
        "txn",
        "remove",
        "remove",
    ]
    assert not any("remove" in action for action in fence)
    assert table.notes()[-1]["taken_back"] == {LINEAGE: 0}
    assert sink.history().committed == KEEP
    rewound(table, attempt=Attempt(3, 0))
    assert len(table.commits()) == before + 3  # the fence


def test_the_next_lineage_goes_on_and_is_taken_back_too(table: DeltaHarness) -> None:
    """Nothing of the first rewind is in the way of the second."""
    rewound(table, {LINEAGE: 1})
    sink = table.opened(Attempt(2, 1))
    [piece] = sink.pre_commit(
        table.frame(table.rows([4, 5])), transaction_id(2, Attempt(2, 1), OTHER_LINEAGE)
    )
    assert commit(sink, piece) == [Committed()]
    sink = rewound(table, attempt=Attempt(3, 0))
    assert table.ids() == [0, 1]
    assert sink.history().committed == KEEP


@pytest.mark.proof
def test_all_of_a_lineage_that_is_not_kept_goes(table: DeltaHarness) -> None:
    sink = rewound(table, {})
    assert table.ids() == []
    assert sink.history().committed == {}


# -- refusals --------------------------------------------------------------------------------------

WRITERS = {
    "delete of all rows": ("DELETE FROM {table} WHERE id IN (4, 5)", "DELETE.* has removed"),
    "optimize": ("OPTIMIZE {table}", "OPTIMIZE.* has removed"),
    "update": ("UPDATE {table} SET name = 'x' WHERE id = 4", "UPDATE.* has removed"),
    "merge": (
        "MERGE INTO {table} t USING (SELECT 4L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "MERGE.* has removed",
    ),
    "restore": ("RESTORE TABLE {table} TO VERSION AS OF 3", "RESTORE.* has removed"),
}


@pytest.mark.parametrize("writer", representatives(WRITERS, {"delete of all rows"}))
def test_files_that_others_have_removed_are_refused_with_the_version(
    table: DeltaHarness, writer: str
) -> None:
    statement, message = WRITERS[writer]
    table.sql(statement)
    remedy = refused(table, rf"version {len(table.commits()) - 1} of the table \({message}")
    table.opened(None).check_rewind({LINEAGE: 2})  # "a checkpoint from after that"
    [restore] = re.findall(r"RESTORE TABLE \.\.\. TO VERSION AS OF \d+", remedy)
    table.sql(restore.replace("...", "{table}"))
    rewound(table, attempt=Attempt(3, 0))
    assert sorted(row["id"] for row in table.rows_visible()) == [0, 1]


def test_a_job_that_is_not_rewound_goes_on_without_the_rows_that_others_have_removed(
    table: DeltaHarness,
) -> None:
    table.sql("DELETE FROM {table} WHERE id IN (4, 5)")
    assert "or start without restore.path to go on." in refused(table, "DELETE.* has removed")
    sink = table.opened(Attempt(3, 1))
    assert commit(sink, table.write(sink, [6], 3, Attempt(3, 1))) == [Committed()]
    assert table.ids() == [0, 1, 2, 3, 6]


@pytest.mark.proof
def test_rows_that_a_deletion_vector_has_deleted_are_refused_with_the_version(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    more = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    table = filled(DeltaHarness(delta_spark, tmp_path / "orders", more=more))
    table.sql("DELETE FROM {table} WHERE id = 4")
    refused(table, rf"version {len(table.commits()) - 1} .*\(DELETE\) has deleted rows of")


@pytest.mark.proof
def test_files_that_were_removed_and_restored_are_whole(table: DeltaHarness) -> None:
    version = len(table.commits()) - 1
    table.sql("OPTIMIZE {table}")
    table.sql(f"RESTORE TABLE {{table}} TO VERSION AS OF {version}")
    rewound(table)
    assert table.ids() == [0, 1]


def test_an_append_only_table_is_refused(table: DeltaHarness) -> None:
    table.sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    remedy = refused(table, r"append-only \(delta.appendOnly\)")
    assert remedy.startswith("undo that with ALTER TABLE")
    table.sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    rewound(table, attempt=Attempt(3, 0))
    assert sorted(row["id"] for row in table.rows_visible()) == [0, 1]


@pytest.mark.proof
def test_what_a_kept_checkpoint_has_lost_does_not_matter(table: DeltaHarness) -> None:
    table.sql("DELETE FROM {table} WHERE id = 0")
    rewound(table)
    assert table.ids() == [1]


# -- the log ---------------------------------------------------------------------------------------


def clean(table: DeltaHarness, upto: int) -> None:
    """As Delta cleans its log: up to a checkpoint of it, which stands for what was before."""
    jvm: Any = table.spark._jvm
    java = jvm.org.apache.spark.sql.delta.DeltaLog
    log = java.forTable(table.spark._jsparkSession, str(table.folder))
    log.checkpoint(log.getSnapshotAt(upto, *nothing(table, 2), False), *nothing(table, 1))
    for number in range(upto):
        (table.folder / "_delta_log" / f"{number:020d}.json").unlink()
    java.clearCache()


def nothing(table: DeltaHarness, count: int) -> list[Any]:
    jvm: Any = table.spark._jvm
    return [jvm.scala.Option.apply(None)] * count


def versions(table: DeltaHarness, checkpoint: int) -> int:
    """Return the version that has committed a checkpoint."""
    [found] = [
        number
        for number, actions in enumerate(table.commits())
        for action in actions
        if "txn" in action
        and action["txn"]["appId"].endswith(LINEAGE)
        and action["txn"]["version"] == checkpoint
    ]
    return found


@pytest.mark.proof
def test_a_log_that_was_cleaned_is_refused_if_it_may_hide_a_file(table: DeltaHarness) -> None:
    clean(table, last := versions(table, 1))
    sink = table.opened(None)
    with pytest.raises(RestoreRefusedError, match=f"cleaned of the commits before version {last}"):
        sink.check_rewind(KEEP)
    sink.check_rewind({LINEAGE: 1})


@pytest.mark.proof
def test_a_log_that_was_cleaned_before_the_checkpoints_is_enough(table: DeltaHarness) -> None:
    """None of the lineage's commits is there that would tell where they begin."""
    rewound(table)
    for number in range(1, 3):
        sink = table.opened(Attempt(2, number))
        [piece] = sink.pre_commit(
            table.frame(table.rows([number + 5])),
            transaction_id(number, Attempt(2, number), OTHER_LINEAGE),
        )
        assert commit(sink, piece) == [Committed()]
        if number == 1:
            clean(table, len(table.commits()) - 2)
    sink = rewound(table, attempt=Attempt(3, 0))
    assert sink.history().committed == KEEP
    assert sorted(row["id"] for row in table.rows_visible()) == [0, 1]


@pytest.mark.proof
def test_the_search_ends_at_a_version_from_before_the_checkpoints(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewind, "_FIRST_LOOK", 1)
    rewound(table)
    sink = table.opened(Attempt(2, 1))
    [piece] = sink.pre_commit(
        table.frame(table.rows([7])), transaction_id(1, Attempt(2, 1), OTHER_LINEAGE)
    )
    assert commit(sink, piece) == [Committed()]
    read = []
    commit_text = type(sink.table.log).commit_text

    def noted(log: Any, version: int) -> str | None:
        read.append(version)
        return commit_text(log, version)

    monkeypatch.setattr(type(sink.table.log), "commit_text", noted)
    newest = len(table.commits()) - 1
    sink.check_rewind(KEEP)
    assert read == [newest, newest - 1]
    rewound(table, attempt=Attempt(3, 0))
    assert table.ids() == [0, 1]


# -- other writers and drivers within the commit, deaths -------------------------------------------


def test_an_append_within_the_commit_stays(table: DeltaHarness, at_point: Any) -> None:
    at_point("D03", lambda: table.sql("INSERT INTO {table} VALUES (100, 'theirs', 1)"))
    rewound(table)
    assert table.ids() == [0, 1, 100]


@pytest.mark.proof
def test_a_delete_within_the_commit_is_found(table: DeltaHarness, at_point: Any) -> None:
    at_point("D03", lambda: table.sql("DELETE FROM {table} WHERE id = 4"))
    with pytest.raises(RestoreRefusedError, match="DELETE"):
        rewound(table)
    assert table.ids() == [0, 1, 2, 3, 5]


def test_a_fence_within_the_commit_is_found(table: DeltaHarness, at_point: Any) -> None:
    newer = table.opened(None)
    at_point("D03", lambda: newer.fence(Attempt(3, 0)))
    with pytest.raises(FencedError):
        rewound(table)
    assert table.ids() == list(range(6))
    assert newer.history().committed == {LINEAGE: 2}


@pytest.mark.parametrize("point", first_of(1, ["D04", "D03"]))
def test_an_error_before_or_after_the_commit_is_made_good(
    table: DeltaHarness, at_point: Any, point: str
) -> None:
    def fail() -> None:
        raise FailpointError(point)

    at_point(point, fail)
    rewound(table)
    assert table.ids() == [0, 1]
    assert sum("taken_back" in note for note in table.notes()) == 1


@pytest.mark.parametrize("point", first_of(1, ["D04", "D03"]))
def test_a_driver_that_is_killed_is_followed_by_one_that_ends_the_rewind(
    table: DeltaHarness, point: str
) -> None:
    script = (
        "import sys; from pathlib import Path; from pyspark.sql import SparkSession;"
        "from harness.delta_settings import delta_settings;"
        "from integration.delta.sink_harness import DeltaHarness;"
        "from integration.delta.test_rewind import rewound;"
        "spark = SparkSession.builder.master('local[1]').config(map=delta_settings())"
        ".config('spark.ui.enabled', False).getOrCreate();"
        "rewound(DeltaHarness(spark, Path(sys.argv[1]), columns=''), {sys.argv[2]: 0})"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(table.folder), LINEAGE],
        env={**os.environ, "TWOPHASE_FAILPOINTS": f"{point}=kill"},
        check=False,
    )
    assert run.returncode == -signal.SIGKILL
    sink = table.opened(None)
    assert sink.history().committed == (KEEP if point == "D04" else {LINEAGE: 2})
    sink = rewound(table, attempt=Attempt(3, 0))
    assert table.ids() == [0, 1]
    assert sink.history().committed == KEEP
    assert sum("taken_back" in note for note in table.notes()) == 1


@pytest.mark.parametrize(("point", "left"), [("D03", 6), ("D04", 2)])
def test_a_rewind_that_died_is_given_up(
    table: DeltaHarness, at_point: Any, point: str, left: int
) -> None:
    """The mark next to the table goes if, and only if, the rows have gone."""

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    table.sql(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = "
        "'interval 90 days')"
    )
    table.opened(None).history()
    at_point(point, die)
    with pytest.raises(Died):
        rewound(table)
    assert table.opened(None).history().committed == {LINEAGE: 2}
    for generation in (3, 4):
        sink = table.opened(Attempt(generation, 0))
        sink.settle_rewind(KEEP, Attempt(generation, 0))
        assert table.ids() == [*range(left)]
        assert sink.history().committed == (KEEP if left == 2 else {LINEAGE: 2})


# -- kinds of tables -------------------------------------------------------------------------------

TABLES = {
    "partitioned": "PARTITIONED BY (name)",
    "deletion vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "column mapping": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "random prefixes": "TBLPROPERTIES ('delta.randomizeFilePrefixes' = 'true')",
    "row tracking": "TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "in-commit timestamps": "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "clustering": "CLUSTER BY (id)",
}


@pytest.mark.proof
@pytest.mark.parametrize("more", TABLES)
def test_every_kind_of_table_is_rewound(
    delta_spark: SparkSession, tmp_path: Path, more: str
) -> None:
    table = filled(DeltaHarness(delta_spark, tmp_path / "orders", more=TABLES[more]))
    table.sql("INSERT INTO {table} VALUES (100, 'theirs', 1)")
    sink = rewound(table)
    assert table.ids() == [0, 1, 100]
    assert sink.history().committed == KEEP


@pytest.mark.proof
def test_the_change_data_feed_has_the_rows_as_deleted(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    more = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    table = filled(DeltaHarness(delta_spark, tmp_path / "orders", more=more))
    rewound(table)
    feed = delta_spark.read.format("delta").option("readChangeFeed", "true")
    changes = feed.option("startingVersion", 0).load(str(table.folder))
    deleted = changes.where("_change_type = 'delete'").select("id").collect()
    assert sorted(row["id"] for row in deleted) == [2, 3, 4, 5]


@pytest.mark.proof
def test_marks_beside_a_table_that_forgets_are_lowered(table: DeltaHarness) -> None:
    table.sql(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = "
        "'interval 90 days')"
    )
    table.opened(None).history()
    rewound(table)
    [mark] = (table.folder / "_twophase").rglob("*.proof")
    assert mark.name.startswith(f"{LINEAGE}-0.")
    rewound(table, {}, Attempt(3, 0))
    assert [*(table.folder / "_twophase").rglob("*.proof")] == []
    assert table.ids() == []
