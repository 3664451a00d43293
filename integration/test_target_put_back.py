"""A MySQL target that loses what is committed in it: restored from a backup or swapped, under a running job or between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.mysql_harness import MySqlHarness, Server
from sinks.mysql.sink import MySqlSink
from tests.coordinator.conftest import SCHEMA, Driver
from twophase.coordinator.pending import PendingCheckpoint
from twophase.errors import TargetChangedError
from twophase.testing.services import MariaDbService

TABLES = ("target", "twophase_fence", "twophase_ledger", "twophase_high_water")


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "mysql":
        yield request.getfixturevalue("mysql")
        return
    with MariaDbService(local_infile=True) as service:
        yield service


class Target(MySqlHarness):
    """A table of ids and its bookkeeping, which can be put back together."""

    def back_up(self) -> None:
        for table in TABLES:
            self.sql(f"DROP TABLE IF EXISTS backup_{table}")
            self.sql(f"CREATE TABLE backup_{table} AS SELECT * FROM {table}")

    def put_back(self) -> None:
        for table in TABLES:
            self.sql(f"DELETE FROM {table}")
            self.sql(f"INSERT INTO {table} SELECT * FROM backup_{table}")


@pytest.fixture
def target(server: Server) -> Target:
    return Target(server, "id BIGINT PRIMARY KEY", SCHEMA)


@pytest.fixture
def new_driver(target: Target, tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    sinks: list[MySqlSink] = []

    def make() -> Driver:
        sinks.append(target.new_sink())
        return Driver(tmp_path / "job", {}, sinks={"facts": sinks[-1]})  # type: ignore[dict-item]

    yield make
    for sink in sinks:
        sink.close()


def no_rows(pending: PendingCheckpoint) -> None:
    pending.acknowledge("facts", ())


def test_a_target_put_back_between_two_triggers_gets_nothing_more(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    driver = new_driver().recover()
    driver.run(0)
    target.back_up()
    driver.run(1)
    driver.run(2)
    target.put_back()
    with pytest.raises(TargetChangedError, match="Checkpoints from 1 to 2 are missing in it"):
        driver.run(3)
    assert target.ids() == list(range(10))
    with pytest.raises(TargetChangedError, match=r"checkpoint 2 .* knows up to 0"):
        new_driver().recover()


def test_rows_of_long_ago_are_missed_when_the_newest_checkpoints_had_none(
    target: Target, new_driver: Callable[[], Driver]
) -> None:
    driver = new_driver().recover()
    target.back_up()
    driver.run(0)
    for number in range(1, 4):
        driver.run(number, no_rows)
    target.put_back()
    with pytest.raises(TargetChangedError, match=r"checkpoint 0 .* knows none"):
        new_driver().recover()


def test_proofs_that_were_collapsed_are_found(target: Target, new_driver: Callable[[], Driver]) -> None:
    driver = new_driver().recover()
    for number in range(17):  # the sink is told to collapse its proofs after the sixteenth
        driver.run(number)
    assert target.sql("SELECT checkpoint FROM twophase_high_water") == [(15,)]
    again = new_driver().recover()
    again.run(17)
    assert target.ids() == list(range(180))
