"""One checkpoint over two MySQL-protocol servers: both have it, or neither."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from integration.arena import Arena
from twophase.testing.services import KafkaService, MariaDbService, MySqlService

BATCH = 1000


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDbService]:
    with MariaDbService(local_infile=True) as service:
        yield service


@pytest.fixture(scope="module")
def arena(
    kafka: KafkaService,
    mysql: MySqlService,
    mariadb: MariaDbService,
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
) -> Arena:
    arena = Arena(kafka, {"facts": mysql, "copy": mariadb}, tmp_path_factory.mktemp("two"), spark=spark)
    arena.produce(BATCH)
    arena.finish()
    arena.verify()
    return arena


@pytest.mark.parametrize(
    ("arm", "meaning"),
    [
        ("C06=kill@2", "all prepared on both, undecided"),
        ("C11=kill@2", "decided, committed on neither"),
        ("C14=kill@6", "committed on one, not on the other"),
    ],
)
def test_the_driver_is_killed_when(arena: Arena, arm: str, meaning: str) -> None:
    arena.produce(3 * BATCH)
    assert arena.run(arm).killed, meaning
    arena.finish()
    arena.verify()


def test_a_server_that_dies_before_the_decision_aborts_the_checkpoint_on_both(
    arena: Arena, mariadb: MariaDbService
) -> None:
    arena.produce(2 * BATCH)
    driver = arena.start("C02=stop@2")
    driver.wait_until_stopped("C02")
    assert arena.count("copy") == arena.count("facts") == arena.produced - BATCH
    mariadb.kill()
    driver.thaw()
    try:
        driver.wait_for(lambda: "CheckpointDeclined" in driver.log.read_text(errors="replace"), "a declined checkpoint")
        assert arena.count("facts") == arena.produced - BATCH
    finally:
        mariadb.restart()
    driver.wait_for(lambda: arena.count("copy") == arena.produced, "the job to recover by itself")
    driver.wait_for(lambda: arena.count("facts") == arena.produced, "the other server")
    driver.kill()
    arena.finish()
    arena.verify()
