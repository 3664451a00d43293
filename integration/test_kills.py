"""SIGKILL at every crash point, with real Spark, Kafka and MySQL: nothing lost, nothing duplicated.

The tests of this module run in order on one job. Each adds records and kills the driver at one point; the next test's
driver recovers what that left, and goes on. After each kill no row may be there twice; the last driver runs to the end,
and then every record must be there once, also after one more checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from integration.arena import Arena
from integration.checker import RECORD, compare, read_topic
from integration.nemesis import Ended
from twophase.testing.services import KafkaService, MySqlService

BATCH = 1000

# In the order of the kills. A point of the recovery comes after one that leaves it something to do, or after another one of them.
KILLS = [
    *("C01", "C02", "C03", "C04", "C05", "C06", "C22", "C20", "C07", "C08", "C09", "C10"),
    *("C11", "C18", "C19", "C12", "C13", "C14", "C15", "C16", "C17"),
]
IN_RECOVERY = {"C18", "C19", "C20", "C22"}
# The point is in a Python worker; it kills the driver from there.
IN_WORKER = {"C03", "C04", "C05"}
# The worker itself dies; the driver lives and takes the checkpoint again.
OF_WORKER = ["E01", "E02"]

_hit: set[str] = set()


@pytest.fixture(scope="module")
def arena(
    kafka: KafkaService, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Arena:
    arena = Arena(kafka, {"facts": mysql}, tmp_path_factory.mktemp("kills"), spark=spark)
    arena.produce(BATCH)
    arena.finish()
    return arena


def note(ended: Ended, point: str) -> None:
    assert point in ended.points, f"{point} was not reached:\n{ended.output}"
    _hit.add(point)


@pytest.mark.parametrize("point", KILLS)
def test_the_driver_is_killed_at(arena: Arena, point: str) -> None:
    arena.produce(2 * BATCH)
    action = "kill_driver" if point in IN_WORKER else "kill"
    # Of the driver's own points the second: its first checkpoint may be what the driver before it has left.
    hit = 1 if point in IN_RECOVERY | IN_WORKER else 2
    ended = arena.run(f"{point}={action}@{hit}")
    assert ended.killed, f"exit code {ended.code}:\n{ended.output}"
    note(ended, point)
    verdict = arena.verdict("facts")
    assert (verdict.duplicated, verdict.foreign) == (0, 0), verdict


@pytest.mark.parametrize("point", OF_WORKER)
def test_a_worker_is_killed_at(arena: Arena, point: str) -> None:
    arena.produce(2 * BATCH)
    ended = arena.run(f"{point}=kill@1")
    assert ended.code == 0, ended.output
    note(ended, point)
    arena.verify()


def test_every_planned_crash_point_was_hit_and_one_more_checkpoint_changes_nothing(arena: Arena) -> None:
    arena.produce(BATCH)
    arena.finish()
    arena.verify()
    assert _hit == {*KILLS, *OF_WORKER}


@pytest.mark.parametrize(("control", "seen"), [("duplicates", "duplicated"), ("losses", "lost")])
def test_without_the_protocol_the_checker_sees(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession, control: str, seen: str
) -> None:
    """The negative controls: the same kill, the protocol switched off in the harness."""
    arena = Arena(kafka, {"facts": mysql}, tmp_path, spark=spark)
    arena.settings["control"] = control
    arena.settings["connection"] = {
        "host": mysql.host,
        "port": mysql.port,
        "user": mysql.user,
        "password": mysql.password,
        "database": arena.databases["facts"],
    }
    arena.produce(2 * BATCH)
    assert arena.run("CONTROL=kill@2").killed
    arena.finish()
    verdict = arena.verdict("facts")
    assert getattr(verdict, seen) > 0, verdict
    assert not verdict.exact


def test_the_checker_counts_multiplicities(arena: Arena, kafka: KafkaService) -> None:
    """A loss hidden behind a duplicate is seen, and so is a row of nobody."""
    produced = read_topic(kafka.bootstrap_servers, arena.topic)
    nobody = np.array([(0, -1, 0)], RECORD)
    stored = np.concatenate([produced[:1], produced[:1], produced[2:], nobody])
    verdict = compare(produced, stored)
    assert (verdict.lost, verdict.duplicated, verdict.foreign) == (1, 1, 1)
