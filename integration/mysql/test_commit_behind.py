"""Commits behind the next micro-batch, with real Spark, Kafka and MySQL: SIGKILL with several checkpoints decided (H48).

Each test has a job of its own. A failpoint holds the thread that commits; the query goes on until as many checkpoints are
decided as may be under way, and no further; then the driver is killed. The next driver recovers that, and in the end every
record must be there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.branches import branches
from harness.nemesis import DriverProcess, held_at
from integration.mysql.scenario import Arena
from twophase.errors import LostPreparedError, PreflightError
from twophase.state.log import JobLog
from twophase.state.records import Decision
from twophase.state.storage import LocalStorage
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("mysql")

BATCH = 1000
UNDER_WAY = 3
OPTIONS = {"checkpoint.max_concurrent": UNDER_WAY}
IN_COMMIT = ("C11", "C12", "C13", "C14", "C15", "C16")
"""Where the thread is held."""


@pytest.fixture
def arena(kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession) -> Iterator[Arena]:
    arena = Arena(kafka, {"facts": mysql}, tmp_path, options=OPTIONS, spark=spark)
    arena.produce(BATCH)
    arena.finish()
    arena.verify()
    yield arena
    arena.abandon()


def waiting(arena: Arena) -> list[Decision]:
    """What is decided and not committed, as the job's folder has it."""
    return JobLog(LocalStorage(arena.scratch / "job"), "orders").read().uncommitted()


def wait_until_decided(arena: Arena, driver: DriverProcess, point: str, count: int) -> None:
    driver.wait_for(
        lambda: point in driver.points() and len(waiting(arena)) == count, f"{count} checkpoints decided at {point}"
    )


def kill_in_commit(arena: Arena, point: str) -> None:
    """Kill a driver with several checkpoints decided, while it commits the first of them."""
    arena.produce(8 * BATCH)
    driver = arena.start(held_at([point]))
    try:
        wait_until_decided(arena, driver, point, UNDER_WAY - 1 if point == "C16" else UNDER_WAY)
    finally:
        driver.kill()
    verdict = arena.verdict("facts")
    assert (verdict.duplicated, verdict.foreign) == (0, 0), verdict


@pytest.mark.proof
@pytest.mark.parametrize("point", IN_COMMIT)
def test_h48_the_driver_is_killed_with_several_decided_while_a_commit_is_at(arena: Arena, point: str) -> None:
    kill_in_commit(arena, point)
    arena.finish()
    arena.verify()


@pytest.mark.proof
def test_h48_recovery_is_killed_when_it_has_committed_the_oldest(arena: Arena) -> None:
    kill_in_commit(arena, "C11")
    before = waiting(arena)
    assert len(before) == UNDER_WAY
    assert arena.run("C19=kill@1").killed
    assert waiting(arena) == before[1:]
    arena.finish()
    arena.verify()


@pytest.mark.proof
def test_a_permanent_failure_of_a_commit_behind_stops_a_query_that_waits_for_records(
    arena: Arena,
) -> None:
    """An operator rolls decided branches back by hand: nobody may overlook it because no further micro-batch comes.

    So soon after the writers have left, a server may say OK and roll only one of them back (docs/decisions/0010).
    """
    arena.produce(BATCH)
    driver = arena.start("C11=stop@1")
    driver.wait_until_stopped("C11")
    wait_until_decided(arena, driver, "C11", 1)
    prepared = branches(arena.servers["facts"])
    assert prepared
    for branch in prepared:
        arena.sql("facts", f"XA ROLLBACK {branch}")
    driver.thaw()
    ended = driver.wait()
    assert ended.code == LostPreparedError.exit_code, ended.output
    assert "rows are lost until they are written again" in ended.output


def test_h51_a_table_with_a_unique_key_is_refused_before_anything_is_written(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession
) -> None:
    keyed = "id BIGINT PRIMARY KEY, customer VARCHAR(20), amount DOUBLE, kafka_partition INT, kafka_offset BIGINT"
    arena = Arena(kafka, {"facts": mysql}, tmp_path, columns=keyed, options=OPTIONS, spark=spark)
    arena.produce(BATCH)
    ended = arena.run()
    assert ended.code == PreflightError.exit_code, ended.output
    assert "leave checkpoint.max_concurrent at 1" in ended.output
    assert arena.count("facts") == 0
