"""SIGKILL at every crash point, with real Spark, Kafka and MySQL: nothing lost, nothing duplicated.

Each test has a job of its own, so that one that fails disturbs no other and `-k` repeats it. After
the kill the log and the server hold exactly what there is at that point: a crash point that has
moved, across the decision say, is found. Then the next driver recovers, takes one more checkpoint,
and every record must be there once.

The driver that is killed takes checkpoints 0 and 1, with a thousand rows in two pieces each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from harness.checker import RECORD, compare, read_topic
from harness.nemesis import held_at
from harness.selection import first_of, representatives
from integration.mysql.scenario import Scenario, State
from twophase.internals import failpoints
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("mysql")

BATCH = 1000
PIECE = BATCH // 2

WRITTEN_NOTHING = State(decided=0, committed=0, prepared=0, visible=BATCH)
PREPARED = State(decided=0, committed=0, prepared=2, visible=BATCH)
DECIDED = State(decided=1, committed=0, prepared=2, visible=BATCH)
HALF_COMMITTED = State(decided=1, committed=0, prepared=1, visible=BATCH + PIECE)
VISIBLE = State(decided=1, committed=0, prepared=0, visible=2 * BATCH)
COMMITTED = State(decided=1, committed=1, prepared=0, visible=2 * BATCH)


def first_piece(prepared: int) -> State:
    """The first task of checkpoint 0 is at work, and no other."""
    return State(decided=-1, committed=-1, prepared=prepared, visible=0)


@dataclass(frozen=True)
class Kill:
    """A kill, and what it leaves.

    Attributes:
        hit: which time the point is reached that it strikes; of the driver's own points the
            one in checkpoint 1.
        state: what is there then.
        worker: the point is in a Python worker: all of a driver with one slot is killed while
            that is held there.
        after: the point where the driver before it was killed, for a point of the recovery of that.
    """

    hit: int
    state: State
    worker: bool = False
    after: str = ""


KILLS = {
    "C01": Kill(2, WRITTEN_NOTHING),
    "C02": Kill(2, WRITTEN_NOTHING),
    "C03": Kill(1, first_piece(prepared=1), worker=True),
    "C04": Kill(1, first_piece(prepared=0), worker=True),
    "C05": Kill(1, first_piece(prepared=1), worker=True),
    "C06": Kill(2, PREPARED),
    "C07": Kill(2, PREPARED),
    "C08": Kill(2, PREPARED),
    "C09": Kill(2, PREPARED),
    "C10": Kill(2, DECIDED),  # the record has its name; a process that dies takes none of it along
    "C11": Kill(2, DECIDED),
    "C12": Kill(2, DECIDED),
    "C13": Kill(2, HALF_COMMITTED),
    "C14": Kill(3, HALF_COMMITTED),
    "C15": Kill(2, VISIBLE),
    "C16": Kill(2, COMMITTED),
    "C17": Kill(1, COMMITTED),
    "C18": Kill(1, DECIDED, after="C11"),
    "C19": Kill(1, COMMITTED, after="C11"),
    "C20": Kill(1, State(decided=0, committed=0, prepared=1, visible=BATCH), after="C06"),
    "C22": Kill(1, COMMITTED, after="C11"),
}
# The worker itself dies; the driver lives and takes the checkpoint again.
OF_WORKER = ["E01", "E02"]


@pytest.fixture
def scenario(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession
) -> Iterator[Scenario]:
    scenario = Scenario(kafka, {"facts": mysql}, tmp_path, spark=spark)
    yield scenario
    scenario.abandon()


def kill_at(scenario: Scenario, point: str, hit: int) -> None:
    ended = scenario.run(f"{point}=kill@{hit}")
    assert ended.killed, f"exit code {ended.code}:\n{ended.output}"
    assert ended.points == [point]


def kill_workers_too(scenario: Scenario, point: str, hit: int) -> None:
    """A worker that is only left alone would go on while its driver dies."""
    scenario.start(held_at([point], hit), master="local[1]").kill_when_at([point])


def one_more_checkpoint(scenario: Scenario) -> None:
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()


@pytest.mark.parametrize("point", representatives(KILLS, {"C13"}))
def test_the_driver_is_killed_at(scenario: Scenario, point: str) -> None:
    kill = KILLS[point]
    scenario.produce(2 * BATCH)
    if kill.after:
        kill_at(scenario, kill.after, KILLS[kill.after].hit)
        assert scenario.state("facts") == KILLS[kill.after].state
    (kill_workers_too if kill.worker else kill_at)(scenario, point, kill.hit)
    assert scenario.state("facts") == kill.state
    one_more_checkpoint(scenario)


@pytest.mark.proof
@pytest.mark.parametrize("point", OF_WORKER)
def test_a_worker_is_killed_at(scenario: Scenario, point: str) -> None:
    scenario.produce(2 * BATCH)
    ended = scenario.run(f"{point}=kill@1")
    assert ended.code == 0, ended.output
    assert ended.points == [point]
    assert scenario.state("facts") == COMMITTED
    one_more_checkpoint(scenario)


def test_every_crash_point_of_the_protocol_has_its_kill() -> None:
    named = {*re.findall(r"\b[CE]\d\d\b", failpoints.__doc__ or "")}
    assert {*KILLS, *OF_WORKER} == named


@pytest.mark.parametrize(
    ("control", "seen"),
    first_of(0, [("duplicates", "duplicated"), ("losses", "lost")]),
)
def test_without_the_protocol_the_checker_sees(
    kafka: KafkaService,
    mysql: MySqlService,
    tmp_path: Path,
    spark: SparkSession,
    control: str,
    seen: str,
) -> None:
    """The negative controls: the same kill, the protocol switched off in the harness."""
    scenario = Scenario(kafka, {"facts": mysql}, tmp_path, spark=spark)
    scenario.settings["control"] = control
    scenario.settings["connection"] = {
        "host": mysql.host,
        "port": mysql.port,
        "user": mysql.user,
        "password": mysql.password,
        "database": scenario.databases["facts"],
    }
    scenario.produce(2 * BATCH)
    assert scenario.run("CONTROL=kill@2").killed
    scenario.finish()
    verdict = scenario.verdict("facts")
    assert getattr(verdict, seen) > 0, verdict
    assert not verdict.exact


def test_the_checker_counts_multiplicities(scenario: Scenario, kafka: KafkaService) -> None:
    """A loss hidden behind a duplicate is seen, and so is a row of nobody."""
    scenario.produce(BATCH)
    produced = read_topic(kafka.bootstrap_servers, scenario.topic)
    nobody = np.array([(0, -1, 0)], RECORD)
    stored = np.concatenate([produced[:1], produced[:1], produced[2:], nobody])
    verdict = compare(produced, stored)
    assert (verdict.lost, verdict.duplicated, verdict.foreign) == (1, 1, 1)
