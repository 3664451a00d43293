"""One checkpoint over two MySQL-protocol servers: both have it, or neither.

Each test has a job of its own. Its first driver takes checkpoints 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.mysql.scenario import Scenario, State
from twophase.testing.services import KafkaService, MariaDbService, MySqlService

pytestmark = [pytest.mark.part("several_sinks"), pytest.mark.proof]

BATCH = 1000
PREPARED = State(decided=0, committed=0, prepared=2, visible=BATCH)
DECIDED = State(decided=1, committed=0, prepared=2, visible=BATCH)
VISIBLE = State(decided=1, committed=0, prepared=0, visible=2 * BATCH)


@pytest.fixture
def scenario(
    kafka: KafkaService,
    mysql: MySqlService,
    mariadb: MariaDbService,
    tmp_path: Path,
    spark: SparkSession,
) -> Iterator[Scenario]:
    scenario = Scenario(kafka, {"facts": mysql, "copy": mariadb}, tmp_path, spark=spark)
    yield scenario
    scenario.abandon()


@pytest.mark.parametrize(
    ("arm", "facts", "copy"),
    [
        pytest.param("C06=kill@2", PREPARED, PREPARED, id="all prepared on both, undecided"),
        pytest.param("C11=kill@2", DECIDED, DECIDED, id="decided, committed on neither"),
        # Two pieces in each of two servers: four of checkpoint 0, then both of checkpoint 1
        # on the first server.
        pytest.param("C14=kill@6", VISIBLE, DECIDED, id="committed on one, not on the other"),
    ],
)
def test_the_driver_is_killed_when_a_checkpoint_is(
    scenario: Scenario, arm: str, facts: State, copy: State
) -> None:
    scenario.produce(2 * BATCH)
    ended = scenario.run(arm)
    assert ended.killed, ended.output
    assert (scenario.state("facts"), scenario.state("copy")) == (facts, copy)
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()


def test_a_server_that_dies_before_the_decision_aborts_the_checkpoint_on_both(
    scenario: Scenario, mariadb: MariaDbService
) -> None:
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()
    scenario.produce(2 * BATCH)
    driver = scenario.start("C02=stop@2")
    driver.wait_until_stopped("C02")
    assert scenario.count("copy") == scenario.count("facts") == scenario.produced - BATCH
    mariadb.kill()
    driver.thaw()
    try:
        driver.wait_for(
            lambda: "CheckpointDeclined" in driver.log.read_text(errors="replace"),
            "a declined checkpoint",
        )
        assert scenario.count("facts") == scenario.produced - BATCH
    finally:
        mariadb.restart()
    driver.wait_for(
        lambda: scenario.count("copy") == scenario.produced, "the job to recover by itself"
    )
    driver.wait_for(lambda: scenario.count("facts") == scenario.produced, "the other server")
    driver.kill()
    scenario.finish()
    scenario.verify()
