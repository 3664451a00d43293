"""MySQL and Hive chained to Kafka, with Delta beside them, in one checkpoint: SIGKILL at eight
points, and of workers whose tasks run again.

The tests run in order on the same jobs. The kill matrix of chained tasks is
`integration/without_spark/test_chained.py`.
"""

from __future__ import annotations

import pytest

from harness.order_files import BATCH
from harness.three_targets import DELTA, HIVE, MYSQL
from integration.three_sinks.scenario import ThreeSinksScenario
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [
    pytest.mark.part("several_sinks"),
    pytest.mark.proof,
    pytest.mark.timeout(1800),
    pytest.mark.relay,
]

NOTHING = {MYSQL: 0, DELTA: 0, HIVE: 0}
# What the three tables show when a job has died there; they commit in this order. Workers of the
# chain hold a slot of Spark's each: they have written, MySQL has its piece, both have theirs.
VISIBLE = {
    "E01": NOTHING,
    "C05": NOTHING,
    "E02": NOTHING,
    "C06": NOTHING,
    "C11": NOTHING,
    "C13": {MYSQL: BATCH // 2, DELTA: 0, HIVE: 0},
    "D02": {MYSQL: BATCH, DELTA: BATCH, HIVE: 0},
    "F03": {MYSQL: BATCH, DELTA: BATCH, HIVE: BATCH // 2},
}
IN_WORKERS = ("E01", "C05", "E02")
JOBS = tuple(f"orders_{number}" for number in range(len(VISIBLE)))


@pytest.fixture(scope="module")
def scenario(
    kafka: KafkaService, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory
) -> ThreeSinksScenario:
    made = ThreeSinksScenario(mysql, tmp_path_factory.mktemp("chained"), JOBS, kafka=kafka)
    made.change_options(chaining="auto")
    return made


def test_every_job_is_killed_at_another_point(scenario: ThreeSinksScenario) -> None:
    scenario.produce(1)
    scenario.kill_at((*VISIBLE,), lambda: None, master=f"local[{4 + len(IN_WORKERS)}]")
    seen = [scenario.targets(job).rows() for job in JOBS]
    assert all(rows in VISIBLE.values() for rows in seen), seen
    assert all(rows in seen for rows in VISIBLE.values()), seen


def test_what_is_left_is_recovered_and_the_jobs_go_on(scenario: ThreeSinksScenario) -> None:
    scenario.produce(1)
    scenario.finish()
    scenario.verify()
    for job in JOBS:
        [told, *_] = scenario.entries(job, "SinksChained")
        assert told.fields["chained"] == [MYSQL, HIVE]
        assert [*told.fields["unchained"]] == [DELTA]


def test_workers_of_a_chain_are_killed_and_their_tasks_run_again(
    scenario: ThreeSinksScenario,
) -> None:
    scenario.produce(1)
    ended = scenario.finish("E01=kill@1,C05=kill@1,E02=kill@1", master="local[2,4]")
    assert {*ended.points} == {*IN_WORKERS}
    assert any(scenario.entries(job, "OrphansAborted") for job in JOBS), (
        "no attempt has lost to another one"
    )
    scenario.verify()
