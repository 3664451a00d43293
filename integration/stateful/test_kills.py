"""Queries that keep state, killed and started again: state, watermark and results are those of
an undisturbed run.

Four jobs in one driver process: a windowed count, a stream-stream join, a deduplication and
transformWithState. The tests of this module run in order on them. Each lets every job come to one
crash point and kills the driver there; the next test's driver recovers what that left, and goes on.
The last driver runs to the end. Another one has read the same records without a kill, and plain
Python says what both must have written.
"""

from __future__ import annotations

import pytest

from integration.stateful.queries import QUERIES
from integration.stateful.scenario import TIMEOUT_S, StatefulScenario, produce
from integration.stateful.workload import expected
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [
    pytest.mark.part("stateful"),
    pytest.mark.proof,
    pytest.mark.timeout(TIMEOUT_S + 120),
    pytest.mark.relay,
]

# Between the decision and Spark's commit log: Spark replays the micro-batch, no sink writes, and
# the state goes on.
DECIDED = {"C13", "C16"}
# Before the decision: the micro-batch is aborted and written again.
UNDECIDED = {"C02", "C06", "C09"}
# Not one of DECIDED after another: recovery and replay commit too, and would be held in place of
# the next checkpoint.
ORDER = ["C13", "C02", "C16", "C06", "C09"]

_caught: dict[tuple[str, str], int] = {}
"""The checkpoint in which a kill caught a job, by job and crash point."""


@pytest.fixture(scope="module")
def topics(kafka: KafkaService) -> dict[str, str]:
    return produce(kafka)


@pytest.fixture(scope="module")
def killed(
    kafka: KafkaService,
    mysql: MySqlService,
    topics: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> StatefulScenario:
    return StatefulScenario(kafka, mysql, topics, tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def undisturbed(
    kafka: KafkaService,
    mysql: MySqlService,
    topics: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> StatefulScenario:
    scenario = StatefulScenario(kafka, mysql, topics, tmp_path_factory.mktemp("undisturbed"))
    scenario.finish()
    return scenario


@pytest.mark.parametrize("point", ORDER)
def test_all_jobs_are_killed_at(killed: StatefulScenario, point: str) -> None:
    assert killed.kill_at(point) == [point] * len(QUERIES)
    for name, rows in expected().items():
        [_caught[name, point]] = killed.unfinished(name)
        assert not killed.rows(name) - rows, f"{name} has rows that it must not have"


def test_every_job_was_killed_at_every_planned_point_and_replayed_its_decided_micro_batches(
    killed: StatefulScenario,
) -> None:
    killed.finish()
    assert set(_caught) == {(name, point) for name in QUERIES for point in DECIDED | UNDECIDED}
    for name in QUERIES:
        replays = killed.replays(name)
        assert all(replays[_caught[name, point]] for point in DECIDED), (
            f"{name}: {_caught}, {replays}"
        )
    assert killed.prepared() == []


@pytest.mark.parametrize("name", QUERIES)
def test_killed_and_undisturbed_runs_end_the_same(
    killed: StatefulScenario, undisturbed: StatefulScenario, name: str
) -> None:
    found, wanted = killed.outcome(name), undisturbed.outcome(name)
    assert found.rows == wanted.rows == expected()[name]
    assert found.batches == wanted.batches
    assert found.state == wanted.state
    assert all(wanted.state)
