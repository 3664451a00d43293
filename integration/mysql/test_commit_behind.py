"""Commits behind the next micro-batch, with real Spark, Kafka and MySQL: SIGKILL with several
checkpoints decided (H48).

Each test has a job of its own. A failpoint holds the thread that commits; the query goes on until
as many checkpoints are decided as may be under way, and no further; then the driver is killed. The
next driver recovers that, and in the end every record must be there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.branches import branches
from harness.nemesis import DriverProcess, held_at
from integration.mysql.scenario import Scenario
from twophase.errors import LostCommittableError, PreflightError
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Decision
from twophase.state.journal.log import JobLog
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("mysql")

BATCH = 1000
UNDER_WAY = 3
OPTIONS = {"checkpoint.max_concurrent": UNDER_WAY}
IN_COMMIT = ("C11", "C12", "C13", "C14", "C15", "C16")
"""Where the thread is held."""


@pytest.fixture
def scenario(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession
) -> Iterator[Scenario]:
    scenario = Scenario(kafka, {"facts": mysql}, tmp_path, options=OPTIONS, spark=spark)
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()
    yield scenario
    scenario.abandon()


def waiting(scenario: Scenario) -> list[Decision]:
    """Decided checkpoints that are not committed, as the job's folder has them."""
    return JobLog(LocalStorage(scenario.scratch / "job"), "orders").read().uncommitted()


def wait_until_decided(scenario: Scenario, driver: DriverProcess, point: str, count: int) -> None:
    driver.wait_for(
        lambda: point in driver.points() and len(waiting(scenario)) == count,
        f"{count} checkpoints decided at {point}",
    )


def kill_in_commit(scenario: Scenario, point: str) -> None:
    """Kill a driver with several checkpoints decided, while it commits the first of them."""
    scenario.produce(8 * BATCH)
    driver = scenario.start(held_at([point]))
    try:
        wait_until_decided(scenario, driver, point, UNDER_WAY - 1 if point == "C16" else UNDER_WAY)
    finally:
        driver.kill()
    verdict = scenario.verdict("facts")
    assert (verdict.duplicated, verdict.foreign) == (0, 0), verdict


@pytest.mark.proof
@pytest.mark.parametrize("point", IN_COMMIT)
def test_h48_the_driver_is_killed_with_several_decided_while_a_commit_is_at(
    scenario: Scenario, point: str
) -> None:
    kill_in_commit(scenario, point)
    scenario.finish()
    scenario.verify()


@pytest.mark.proof
def test_h48_recovery_is_killed_when_it_has_committed_the_oldest(scenario: Scenario) -> None:
    kill_in_commit(scenario, "C11")
    before = waiting(scenario)
    assert len(before) == UNDER_WAY
    assert scenario.run("C19=kill@1").killed
    assert waiting(scenario) == before[1:]
    scenario.finish()
    scenario.verify()


@pytest.mark.proof
def test_a_permanent_failure_of_a_queued_commit_stops_a_query_that_waits_for_records(
    scenario: Scenario,
) -> None:
    """An operator rolls decided branches back by hand: nobody may overlook it because no further
    micro-batch comes.

    So soon after the writers have left, a server may say OK and roll only one of them back
    (docs/decisions/0010).
    """
    scenario.produce(BATCH)
    driver = scenario.start("C11=stop@1")
    driver.wait_until_stopped("C11")
    wait_until_decided(scenario, driver, "C11", 1)
    prepared = branches(scenario.servers["facts"])
    assert prepared
    for branch in prepared:
        scenario.sql("facts", f"XA ROLLBACK {branch}")
    driver.thaw()
    ended = driver.wait()
    assert ended.code == LostCommittableError.exit_code, ended.output
    assert "rows are lost until they are written again" in ended.output


def test_h51_a_table_with_a_unique_key_is_refused_before_anything_is_written(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession
) -> None:
    keyed = (
        "id BIGINT PRIMARY KEY, customer VARCHAR(20), amount DOUBLE, kafka_partition INT, "
        "kafka_offset BIGINT"
    )
    scenario = Scenario(
        kafka, {"facts": mysql}, tmp_path, columns=keyed, options=OPTIONS, spark=spark
    )
    scenario.produce(BATCH)
    ended = scenario.run()
    assert ended.code == PreflightError.exit_code, ended.output
    assert "leave checkpoint.max_concurrent at 1" in ended.output
    assert scenario.count("facts") == 0
