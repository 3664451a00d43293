"""The fence is up when the log shows its commit, not when Delta is done with what follows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.outcome import Committed
from twophase.ids import Attempt
from twophase.sinks.delta.jvm import Jvm
from twophase.sinks.delta.log import Log
from twophase.sinks.delta.transaction import Transactions

pytestmark = pytest.mark.part("delta")

COUNTS_ALWAYS = "TBLPROPERTIES ('delta.checkpointInterval' = '1')"
_TIMEOUT_S = 120


@pytest.fixture
def make(delta_spark: SparkSession, tmp_path: Path) -> Callable[..., DeltaHarness]:
    return lambda more="": DeltaHarness(delta_spark, tmp_path / "orders", more=more)


@contextmanager
def no_free_task(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Every slot of Spark is taken: a job that begins now ends after this."""
    slots, over = spark.sparkContext.defaultParallelism, folder / "over"

    def take(number: int) -> None:
        (folder / f"taken-{number}").touch()
        wait_for(over.exists)

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(spark.sparkContext.parallelize(range(slots), slots).foreach, take)
        try:
            wait_for(lambda: len([*folder.glob("taken-*")]) == slots)
            yield
        finally:
            over.touch()
            job.result()


def wait_for(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def counting() -> list[threading.Thread]:
    """Threads of commits that Delta has not finished."""
    return [thread for thread in threading.enumerate() if thread.name == "twophase-delta-commit"]


@pytest.mark.proof
def test_a_fence_does_not_wait_until_delta_has_counted_the_files(
    make: Callable[..., DeltaHarness], tmp_path: Path
) -> None:
    """Nor does what reads the table after it."""
    table = make(COUNTS_ALWAYS)
    sink = table.opened()
    assert commit(sink, table.write(sink, [1, 2, 3])) == [Committed()]
    sink = table.opened(attempt=None)
    with no_free_task(table.spark, tmp_path):
        sink.fence(Attempt(2, 0))
        assert sink.history().generation == 2
    for thread in counting():
        thread.join()
    assert table.ids() == [1, 2, 3]


def test_the_version_of_a_commit_ahead_is_its_own_beside_others(
    make: Callable[..., DeltaHarness],
) -> None:
    table = make()
    jvm = Jvm(table.spark)
    transactions = Transactions(Log(jvm, str(table.folder)))
    with jvm.active():
        transaction = transactions.begin()
        for number in range(3):
            transactions.begin().commit([], f"other-{number}", 1, "query", 1, {})
        version = transaction.commit_ahead("app", 1, "query", 1, {})
    assert version == transaction.snapshot.version + 4
    assert transactions.log.shows(version, transaction.nonce)


def test_an_error_of_a_commit_ahead_is_raised(make: Callable[..., DeltaHarness]) -> None:
    table = make()
    jvm = Jvm(table.spark)
    transactions = Transactions(Log(jvm, str(table.folder)))
    with jvm.active():
        transaction = transactions.begin()
        transaction.watch("app")
        transactions.begin().commit([], "app", 1, "query", 1, {})
        with pytest.raises(Py4JJavaError, match="ConcurrentTransactionException"):
            transaction.commit_ahead("app", 2, "query", 2, {})
