"""Zombies: a driver is stopped at a crash point, others go on with the job, then it is let go.

Each test has a job of its own with two sinks, on MySQL and on MariaDB, which differ in what a
prepared branch still locks. A driver is stopped at the point with everything it has started. The
next one takes over and writes what is left, two checkpoints. When nothing else moves, the one that
was stopped is let go: it has to find out that it is fenced, and may leave no trace. Then one more
checkpoint is taken, and every record must be there once.

A point of the recovery has two zombies: the driver that has left it something to recover is
stopped, not killed, and is let go as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.nemesis import DriverProcess
from harness.selection import representatives
from integration.mysql.scenario import Scenario
from twophase.errors import FencedError
from twophase.internals import failpoints
from twophase.testing.services import KafkaService, MariaDbService, MySqlService

pytestmark = pytest.mark.part("several_sinks")

BATCH = 1000
PARTITIONS = 2
SINKS = 2
PIECES = PARTITIONS * SINKS
BEHIND = 2
"""Checkpoints that the others take before a stopped driver is let go."""


@dataclass(frozen=True)
class Stop:
    """Where a driver is stopped.

    Attributes:
        hit: which time the point is reached; `*` for a point in the workers,
            where all of them stop.
        workers_alone: the driver and its JVM are not stopped, they wait for the workers.
        after: where the driver before it was stopped, for a point of the recovery of that.
    """

    hit: int | str
    workers_alone: bool = False
    after: str = ""


def second(times: int = 1) -> int:
    """The first hit in checkpoint 1, of a point that each checkpoint reaches so many times."""
    return times + 1


STOPS = {
    "C01": Stop(second()),
    "C02": Stop(second()),
    "C03": Stop("*"),
    "C04": Stop("*"),
    "C05": Stop("*"),
    "C06": Stop(second()),
    "C07": Stop(second()),
    "C08": Stop(second()),
    "C09": Stop(second()),
    "C10": Stop(second()),
    "C11": Stop(second()),
    "C12": Stop(second(SINKS)),
    "C13": Stop(second(SINKS * (PARTITIONS - 1))),
    "C14": Stop(second(PIECES) + PARTITIONS),  # one sink has it, the other one has a piece
    "C15": Stop(second(SINKS)),
    "C16": Stop(second()),
    "C17": Stop(1),
    "C18": Stop(1, after="C11"),
    "C19": Stop(1, after="C11"),
    "C20": Stop(SINKS, after="C06"),  # in the second sink
    "C22": Stop(1, after="C06"),
    "E01": Stop("*", workers_alone=True),
    "E02": Stop("*", workers_alone=True),
}


class Zombies:
    """A job, and the drivers of it that are stopped.

    Args:
        scenario: the job.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.stopped: list[tuple[str, DriverProcess]] = []
        self._drivers: list[DriverProcess] = []

    def stop_at(self, point: str) -> None:
        """Start a driver, and wait until it is stopped; first the one whose
        work it is to recover.
        """
        stop = STOPS[point]
        if stop.after:
            self.stop_at(stop.after)
        processes = PIECES if stop.hit == "*" else 1
        driver = self.scenario.start(
            f"{point}=stop@{stop.hit}", master=f"local[{max(processes, PARTITIONS)}]"
        )
        self._drivers.append(driver)
        driver.wait_until_stopped(point, processes)
        if not stop.workers_alone:
            driver.freeze()
        self.stopped.append((point, driver))

    def let_go(self) -> None:
        """Let them go one by one. Nothing else moves, so what changes is their doing."""
        for point, driver in self.stopped:
            before = self.state()
            driver.thaw()
            ended = driver.wait()
            assert ended.code == FencedError.exit_code, (
                f"{point}: exit code {ended.code}:\n{ended.output}"
            )
            assert "FencedError" in ended.output
            assert self.state() == before, (
                f"the driver stopped at {point} left a trace:\n{ended.output}"
            )

    def state(self) -> dict[str, Any]:
        """All that a driver may change: the job's log, and the visible and the prepared
        rows of each sink.

        The log begins at its newest SUBSUMED record. One that had not seen it may write a name that
        was free before it.
        """
        paths = sorted((self.scenario.scratch / "job" / "log").glob("[0-9]*"))
        log = {path.name: path.read_bytes() for path in paths}
        begin = max(
            (name for name, record in log.items() if b" SUBSUMED " in record.split(b"\n")[0]),
            default="",
        )
        records = {name: record for name, record in log.items() if name >= begin}
        targets = {
            sink: (self.scenario.count(sink), sorted(self.scenario.prepared(sink)))
            for sink in self.scenario.servers
        }
        return {"log": records, **targets}

    def end(self) -> None:
        """Leave no driver and nothing prepared behind."""
        for driver in self._drivers:
            if driver.running:
                driver.kill()
        self.scenario.abandon()


@pytest.fixture
def zombies(
    kafka: KafkaService,
    mysql: MySqlService,
    mariadb: MariaDbService,
    tmp_path: Path,
    spark: SparkSession,
) -> Iterator[Zombies]:
    zombies = Zombies(Scenario(kafka, {"facts": mysql, "copy": mariadb}, tmp_path, spark=spark))
    yield zombies
    zombies.end()


@pytest.mark.parametrize("point", representatives(STOPS, ()))
def test_a_driver_is_fenced_out_that_was_stopped_at(zombies: Zombies, point: str) -> None:
    scenario = zombies.scenario
    scenario.produce(2 * BATCH)
    zombies.stop_at(point)
    scenario.produce(BEHIND * BATCH)
    scenario.finish()
    zombies.let_go()
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()


def test_a_driver_is_stopped_at_every_crash_point() -> None:
    assert {*STOPS} == {*re.findall(r"\b[CE]\d\d\b", failpoints.__doc__ or "")}
