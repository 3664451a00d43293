"""MySQL, Delta and Hive in one checkpoint, with SIGKILL at eight points around the decision: all
three have it, or none. With a version of PySpark that has no Delta, the other two at six points.

Stands in `make test` for `test_kills.py`, which takes every point and two negative controls. One
driver runs eight jobs, holds each at another point, and is killed; the next one recovers what that
left and goes on. As long as they run, a reader looks at all tables, also once while all jobs are
held and once when they were killed.
"""

from __future__ import annotations

import pytest

from harness.order_files import BATCH
from harness.three_targets import DELTA, HIVE, MYSQL, SINKS
from integration.three_sinks.reader import ThreeReader
from integration.three_sinks.scenario import ThreeSinksScenario
from twophase.testing.services import MySqlService

pytestmark = [pytest.mark.part("several_sinks"), pytest.mark.timeout(1800)]

# What each of the tables shows when a job has died at a point of its first checkpoint. MySQL,
# Delta and Hive commit in this order; a checkpoint of MySQL and of Hive is two pieces, one of
# Delta is one commit.
OF_DELTA = {"D01", "D02"}
POINTS = {
    "C05": {MYSQL: 0, DELTA: 0, HIVE: 0},
    "C06": {MYSQL: 0, DELTA: 0, HIVE: 0},
    "C09": {MYSQL: 0, DELTA: 0, HIVE: 0},
    "C11": {MYSQL: 0, DELTA: 0, HIVE: 0},
    "C13": {MYSQL: BATCH // 2, DELTA: 0, HIVE: 0},
    "D01": {MYSQL: BATCH, DELTA: 0, HIVE: 0},
    "D02": {MYSQL: BATCH, DELTA: BATCH, HIVE: 0},
    "C16": {MYSQL: BATCH, DELTA: BATCH, HIVE: BATCH},
}
VISIBLE = {
    point: {sink: shown[sink] for sink in SINKS}
    for point, shown in POINTS.items()
    if DELTA in SINKS or point not in OF_DELTA
}
DECIDED = {"C11", "C13", "D01", "D02", "C16"} & {*VISIBLE}
JOBS = tuple(f"orders_{number}" for number in range(len(VISIBLE)))


@pytest.fixture(scope="module")
def jobs(mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory) -> ThreeSinksScenario:
    return ThreeSinksScenario(mysql, tmp_path_factory.mktemp("three"), JOBS)


@pytest.fixture(scope="module")
def reader(jobs: ThreeSinksScenario) -> ThreeReader:
    return ThreeReader(jobs, JOBS)


@pytest.fixture(scope="module")
def killed(jobs: ThreeSinksScenario, reader: ThreeReader) -> ThreeSinksScenario:
    """After the kill."""
    jobs.produce(1)
    with reader:
        jobs.kill_at((*VISIBLE,), reader.look_again, master="local[6]")
    return jobs


@pytest.fixture(scope="module")
def recovered(killed: ThreeSinksScenario, reader: ThreeReader) -> ThreeSinksScenario:
    """After a driver that recovers, writes one more checkpoint, and ends."""
    killed.produce(1)
    with reader:
        killed.finish()
    return killed


def test_a_killed_job_shows_in_each_table_what_its_crash_point_says(
    killed: ThreeSinksScenario,
) -> None:
    seen = [killed.targets(job).rows() for job in JOBS]
    assert sorted(seen, key=str) == sorted(VISIBLE.values(), key=str)


def test_every_record_is_in_every_table_once_and_nothing_is_left(
    recovered: ThreeSinksScenario,
) -> None:
    recovered.verify()
    found = [rows for job in JOBS for rows in recovered.recovered(job)]
    nothing, everything = dict.fromkeys(SINKS, 0), dict.fromkeys(SINKS, BATCH)
    assert [found.count(nothing), found.count(everything)] == [
        len(JOBS) - len(DECIDED),
        len(DECIDED),
    ], found


@pytest.mark.usefixtures("recovered")
def test_a_reader_saw_decided_rows_once_and_of_delta_whole_checkpoints_only(
    reader: ThreeReader,
) -> None:
    """MySQL may show a part: a driver that died in mid-commit leaves one, and the next
    start commits the rest.
    """
    assert reader.wrong == {job: [] for job in JOBS}
    assert reader.looks_at_rest == 1
    assert all(reader.looks[sink] for sink in SINKS), reader.looks
    assert reader.looks_at_parts[DELTA] == 0
    assert reader.left(MYSQL), "no kill at C13 was seen"
    assert reader.open == {}
