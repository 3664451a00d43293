"""One job from Kafka to MySQL and MariaDB, all three in containers, which are killed while a
decided checkpoint waits.
"""

from __future__ import annotations

import pytest

from integration.mysql.scenario import Scenario
from twophase.testing.containers import KafkaContainer, MariaDbContainer, MySqlContainer

BATCH = 1000


@pytest.fixture(scope="module")
def scenario(
    kafka_container: KafkaContainer,
    mysql_container: MySqlContainer,
    mariadb_container: MariaDbContainer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Scenario:
    servers = {"facts": mysql_container, "copy": mariadb_container}
    return Scenario(kafka_container, servers, tmp_path_factory.mktemp("containers"))


def counts(scenario: Scenario) -> dict[str, int]:
    return {sink: scenario.count(sink) for sink in scenario.servers}


def test_decided_checkpoints_outlive_their_driver_and_both_servers(
    scenario: Scenario, mysql_container: MySqlContainer, mariadb_container: MariaDbContainer
) -> None:
    scenario.produce(3 * BATCH)
    ended = scenario.run("C11=kill@2")
    assert ended.killed, ended.output
    before = {sink: sorted(scenario.prepared(sink)) for sink in scenario.servers}
    assert all(before.values())
    assert counts(scenario) == {"facts": BATCH, "copy": BATCH}
    for container in (mysql_container, mariadb_container):
        container.kill()
        container.restart()
    assert {sink: sorted(scenario.prepared(sink)) for sink in scenario.servers} == before
    scenario.finish()
    scenario.verify()


def test_a_decided_checkpoint_waits_for_a_server_that_is_away(
    scenario: Scenario, mysql_container: MySqlContainer
) -> None:
    written = scenario.produced
    driver = scenario.start("C11=stop@1")
    scenario.produce(BATCH)
    driver.wait_until_stopped("C11")
    mysql_container.kill()
    try:
        driver.thaw()
        driver.wait_for(
            lambda: "CommitRetried" in driver.log.read_text(errors="replace"),
            "another try to commit",
        )
        driver.wait_for(
            lambda: scenario.count("copy") == written + BATCH,
            "the checkpoint on the server that is there",
        )
    finally:
        mysql_container.restart()
    driver.wait_for(
        lambda: scenario.count("facts") == written + BATCH,
        "the checkpoint on the server that was away",
    )
    driver.kill()
    scenario.finish()
    scenario.verify()
