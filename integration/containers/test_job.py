"""One job from Kafka to MySQL and MariaDB, all three in containers, which are killed while a decided checkpoint waits."""

from __future__ import annotations

import pytest

from integration.mysql.scenario import Arena
from twophase.testing.containers import KafkaContainer, MariaDbContainer, MySqlContainer

BATCH = 1000


@pytest.fixture(scope="module")
def arena(
    kafka_container: KafkaContainer,
    mysql_container: MySqlContainer,
    mariadb_container: MariaDbContainer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Arena:
    servers = {"facts": mysql_container, "copy": mariadb_container}
    return Arena(kafka_container, servers, tmp_path_factory.mktemp("containers"))


def counts(arena: Arena) -> dict[str, int]:
    return {sink: arena.count(sink) for sink in arena.servers}


def test_what_was_decided_outlives_its_driver_and_both_servers(
    arena: Arena, mysql_container: MySqlContainer, mariadb_container: MariaDbContainer
) -> None:
    arena.produce(3 * BATCH)
    ended = arena.run("C11=kill@2")
    assert ended.killed, ended.output
    before = {sink: sorted(arena.prepared(sink)) for sink in arena.servers}
    assert all(before.values())
    assert counts(arena) == {"facts": BATCH, "copy": BATCH}
    for container in (mysql_container, mariadb_container):
        container.kill()
        container.restart()
    assert {sink: sorted(arena.prepared(sink)) for sink in arena.servers} == before
    arena.finish()
    arena.verify()


def test_a_decided_checkpoint_waits_for_a_server_that_is_away(arena: Arena, mysql_container: MySqlContainer) -> None:
    written = arena.produced
    driver = arena.start("C11=stop@1")
    arena.produce(BATCH)
    driver.wait_until_stopped("C11")
    mysql_container.kill()
    try:
        driver.thaw()
        driver.wait_for(lambda: "CommitRetried" in driver.log.read_text(errors="replace"), "another try to commit")
        driver.wait_for(lambda: arena.count("copy") == written + BATCH, "the checkpoint on the server that is there")
    finally:
        mysql_container.restart()
    driver.wait_for(lambda: arena.count("facts") == written + BATCH, "the checkpoint on the server that was away")
    driver.kill()
    arena.finish()
    arena.verify()
