"""Zombies: a driver is stopped at a crash point, others go on with the job, then it is let go.

The tests of this module are a relay on one job with two sinks, on MySQL and on MariaDB, which differ in what a prepared
branch still locks. Each driver takes over from the one that is stopped, and is itself stopped at the next point. While
nothing else moves, those that are two checkpoints behind are let go one by one: each has to find out that it is fenced,
and may leave no trace. The last driver runs to the end, and then every record must be there once.

The order matters. A driver that is stopped within a commit follows one that had not decided, and has nothing to commit
in its recovery, so that the hits can be counted. One that is stopped in its recovery follows one that left it work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from integration.arena import Arena
from integration.nemesis import DriverProcess
from twophase.errors import FencedError
from twophase.testing.services import KafkaService, MariaDbService, MySqlService

BATCH = 1000
PARTITIONS = 2
SINKS = 2
BEHIND = 2
"""Checkpoints that the others take before a stopped driver is let go."""


@dataclass(frozen=True)
class Stop:
    """Where a driver is stopped.

    Attributes:
        point: the crash point.
        hit: which time it is reached; `*` for a point in the workers, where all of them stop.
        workers_alone: the driver and its JVM are not stopped, they wait for the workers.
    """

    point: str
    hit: int | str
    workers_alone: bool = False

    def __str__(self) -> str:
        return f"{self.point}@{self.hit}"


def third(times: int = 1) -> int:
    """The first hit in a driver's third checkpoint, of a point that is reached so many times in each."""
    return 2 * times + 1


RELAY = [
    Stop("C17", 2),
    Stop("C01", third()),
    Stop("E01", "*", workers_alone=True),
    Stop("C12", third(SINKS)),
    Stop("C02", third()),
    Stop("C03", "*"),
    Stop("C13", third(SINKS * (PARTITIONS - 1))),
    Stop("C07", third()),
    Stop("C04", "*"),
    Stop("C14", third(SINKS * PARTITIONS) + PARTITIONS),
    Stop("C08", third()),
    Stop("C05", "*"),
    Stop("C15", third(SINKS)),
    Stop("C09", third()),
    Stop("E02", "*", workers_alone=True),
    Stop("C10", third()),
    Stop("C16", third()),
    Stop("C11", third()),
    Stop("C18", 1),
    Stop("C19", 1),
    Stop("C06", third()),
    Stop("C20", 2),
    Stop("C22", 1),
]


@dataclass(frozen=True)
class Stopped:
    """A driver that was stopped, and how far the job was."""

    driver: DriverProcess
    stop: Stop
    rows: int


class Relay:
    """The job, and the drivers of it that are stopped.

    Args:
        arena: the job.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.zombies: list[Stopped] = []
        self.fenced: list[Stop] = []
        self._drivers: list[DriverProcess] = []

    def start(self, arm: str = "", **settings: Any) -> DriverProcess:
        """Start a driver that takes over."""
        driver = self.arena.start(arm, **settings)
        self._drivers.append(driver)
        return driver

    def next_is_stopped(self, stop: Stop) -> None:
        """Start a driver and wait until it is stopped."""
        self.arena.produce((BEHIND + 1) * BATCH)
        processes = PARTITIONS * SINKS if stop.hit == "*" else 1
        driver = self.start(f"{stop.point}=stop@{stop.hit}", master=f"local[{max(processes, PARTITIONS)}]")
        driver.wait_until_stopped(stop.point, processes)
        if not stop.workers_alone:
            driver.freeze()
        self.zombies.append(Stopped(driver, stop, self.rows()))

    def let_go(self) -> None:
        """Let those go that the job has left behind. Nothing else moves, so what changes is their doing."""
        rows = self.rows()
        for zombie in [zombie for zombie in self.zombies if rows >= zombie.rows + BEHIND * BATCH]:
            before = self.state()
            zombie.driver.thaw()
            ended = zombie.driver.wait()
            self.zombies.remove(zombie)
            assert ended.code == FencedError.exit_code, f"{zombie.stop}: exit code {ended.code}:\n{ended.output}"
            assert "FencedError" in ended.output
            assert self.state() == before, f"the driver stopped at {zombie.stop} left a trace:\n{ended.output}"
            self.fenced.append(zombie.stop)

    def rows(self) -> int:
        """The rows that are visible in every sink."""
        return min(self.arena.count(sink) for sink in self.arena.servers)

    def state(self) -> dict[str, Any]:
        """All that a driver may change: the job's log, and the visible and the prepared rows of each sink.

        The log begins at its newest SUBSUMED record. One that had not seen it may write a name that was free before it.
        """
        paths = sorted((self.arena.scratch / "job" / "log").glob("[0-9]*"))
        log = {path.name: path.read_bytes() for path in paths}
        begin = max((name for name, record in log.items() if b" SUBSUMED " in record.split(b"\n")[0]), default="")
        records = {name: record for name, record in log.items() if name >= begin}
        targets = {sink: (self.arena.count(sink), sorted(self.arena.prepared(sink))) for sink in self.arena.servers}
        return {"log": records, **targets}

    def end(self) -> None:
        """Leave no driver behind."""
        for driver in self._drivers:
            if driver.running:
                driver.kill()


@pytest.fixture(scope="module")
def relay(kafka: KafkaService, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    with MariaDbService(local_infile=True) as mariadb:
        relay = Relay(Arena(kafka, {"facts": mysql, "copy": mariadb}, tmp_path_factory.mktemp("zombies")))
        yield relay
        relay.end()


@pytest.mark.parametrize("stop", RELAY, ids=str)
def test_a_driver_takes_over_and_is_stopped_at(relay: Relay, stop: Stop) -> None:
    relay.next_is_stopped(stop)
    relay.let_go()


def test_the_last_driver_ends_undisturbed_and_every_zombie_was_fenced_out(relay: Relay) -> None:
    arena = relay.arena
    last = relay.start()
    last.wait_for(lambda: relay.rows() == arena.produced, "the last driver to write all records")
    last.freeze()
    relay.let_go()
    assert relay.zombies == []
    last.thaw()
    arena.produce(BATCH)
    last.wait_for(lambda: relay.rows() == arena.produced, "the last driver to go on")
    last.kill()
    arena.verify()
    assert sorted(relay.fenced, key=str) == sorted(RELAY, key=str)
