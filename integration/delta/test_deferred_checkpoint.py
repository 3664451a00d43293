"""Recovery leaves the checkpoint of a Delta table's log, and the count of its files, to the job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.outcome import Committed
from twophase.ids import Attempt
from twophase.sinks.delta import transaction as module
from twophase.sinks.delta.jvm import Jvm
from twophase.sinks.delta.log import Log
from twophase.sinks.delta.transaction import Transactions

pytestmark = pytest.mark.part("delta")

DUE_ALWAYS = "TBLPROPERTIES ('delta.checkpointInterval' = '1')"


@pytest.fixture
def make(delta_spark: SparkSession, tmp_path: Path) -> Callable[..., DeltaHarness]:
    return lambda more=DUE_ALWAYS: DeltaHarness(delta_spark, tmp_path / "orders", more=more)


def jobs_of(table: DeltaHarness, act: Callable[[], object]) -> int:
    """The number of Spark jobs that an act of this thread starts."""
    jvm, tag = Jvm(table.spark), f"counted-{id(act)}"
    with jvm.job_tag(tag):
        act()
    context = table.spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return len([*context.statusTracker().getJobIdsForTag(tag)])


def checkpoints(table: DeltaHarness) -> int:
    return len([*(table.folder / "_delta_log").glob("*.checkpoint*.parquet")])


def test_recovery_starts_no_spark_job_where_delta_would_count(
    make: Callable[..., DeltaHarness],
) -> None:
    table = make()
    sink = table.opened()
    piece = table.write(sink, [1, 2, 3])
    sink, before = table.opened(attempt=None), checkpoints(table)
    assert jobs_of(table, lambda: commit(sink, piece)) == 0
    assert jobs_of(table, lambda: sink.fence(Attempt(2, 0))) == 0
    assert checkpoints(table) == before
    assert sink.history().generation == 2
    assert table.ids() == [1, 2, 3]


def test_the_running_job_makes_the_checkpoint(make: Callable[..., DeltaHarness]) -> None:
    table = make()
    sink = table.opened()
    before = checkpoints(table)
    assert commit(sink, table.write(sink, [1, 2, 3])) == [Committed()]
    assert checkpoints(table) == before + 1


def test_recovery_makes_it_too_where_the_last_one_is_long_ago(
    make: Callable[..., DeltaHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make()
    sink = table.opened(attempt=None)
    monkeypatch.setattr(module, "_FAR_BEHIND", 1)
    before = checkpoints(table)
    sink.fence(Attempt(2, 0))
    assert checkpoints(table) == before + 1


def test_without_a_compiler_the_commit_counts(
    make: Callable[..., DeltaHarness],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "_SOURCE", "no Java")
    table = make()
    sink, before = table.opened(attempt=None), checkpoints(table)
    with caplog.at_level(logging.INFO, "twophase.sinks.delta"):
        sink.fence(Attempt(2, 0))
    assert "cannot be deferred" in caplog.text
    assert checkpoints(table) == before + 1


def test_its_commit_conflicts_like_any_other(make: Callable[..., DeltaHarness]) -> None:
    """Another driver has raised the application id meanwhile."""
    table = make()
    jvm = Jvm(table.spark)
    with jvm.active():
        transaction = Transactions(Log(jvm, str(table.folder))).begin()
        transaction.defer_checkpoint()
        assert "Deferring" in str(transaction._java.getClass().getName())
        transaction.watch("app")
        Transactions(Log(jvm, str(table.folder))).begin().commit([], "app", 1, "query", 1, {})
        with pytest.raises(Py4JJavaError, match="ConcurrentTransactionException"):
            transaction.commit([], "app", 2, "query", 2, {})


def test_it_is_used_only_where_a_checkpoint_is_due(make: Callable[..., DeltaHarness]) -> None:
    """Compiling it takes a tenth of a second."""
    table = make("")
    jvm = Jvm(table.spark)
    with jvm.active():
        found = Transactions(Log(jvm, str(table.folder)))
        transaction = found.begin()
        transaction.defer_checkpoint()
    assert "deferring" not in vars(found)
