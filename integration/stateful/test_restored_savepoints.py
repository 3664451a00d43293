"""A job with keyed state is restored from a savepoint, and its driver killed at each step of that:
nothing is lost or duplicated, and the state goes on exactly.

The savepoint is that of a driver that was killed with two checkpoints decided and committed
nowhere, so the restore has to commit them under their old identity. The tests of this module run in
order: each starts a driver with the same restore, and kills it one step further on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from integration.stateful.scenario import TIMEOUT_S, StatefulScenario, produce
from integration.stateful.workload import expected
from twophase.operations.savepoint.make import open_savepoint
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [
    pytest.mark.part("stateful"),
    pytest.mark.proof,
    pytest.mark.timeout(TIMEOUT_S + 120),
    pytest.mark.relay,
]

QUERY = "visits"
"""Value state and timers, in RocksDB. Its first rows are in checkpoint 2."""
PENDING = [2, 3]
OWN, OTHER = "jobs", "again"
# There the log has what is to be committed.
IN_ITS_OWN_FOLDER = ["C18", "C19"]
BEFORE_THE_LINEAGE = ["C18", "C12", "C13", "C14", "C15", "C22", "S05", "S06"]
# C16 in checkpoint 4, C11 in 5, C17 in its recovery.
AFTERWARDS = ["S07", "C01", "C06", "C16", "C11", "C17"]


@pytest.fixture(scope="module")
def topics(kafka: KafkaService) -> dict[str, str]:
    return produce(kafka)


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("savepoints") / "made"


@pytest.fixture(scope="module")
def job(
    kafka: KafkaService,
    mysql: MySqlService,
    topics: dict[str, str],
    savepoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> StatefulScenario:
    scratch = tmp_path_factory.mktemp("restored")
    options = {"checkpoint.max_concurrent": "2"}
    scenario = StatefulScenario(kafka, mysql, topics, scratch, [QUERY], **options)
    scenario.save_with_pending(savepoint, max(PENDING) + 1)
    return scenario


def test_what_is_pending_is_in_the_savepoint(job: StatefulScenario, savepoint: Path) -> None:
    found = open_savepoint(str(savepoint))
    found.verify()
    assert [one.checkpoint for one in found.pending()] == PENDING
    assert job.rows(QUERY) == {}
    assert job.prepared()


@pytest.mark.parametrize("point", IN_ITS_OWN_FOLDER)
def test_it_is_killed_in_the_job_s_own_folder_at(
    job: StatefulScenario, savepoint: Path, point: str
) -> None:
    job.restore(savepoint, OWN)
    assert job.kill_at(point, 1) == [point]
    assert not job.rows(QUERY) - expected()[QUERY]


def test_the_savepoint_is_moved_and_the_job_s_folder_lost(
    job: StatefulScenario, savepoint: Path
) -> None:
    moved = savepoint.with_name("moved")
    savepoint.rename(moved)
    shutil.rmtree(job.location)
    job.restore(moved, OTHER)


@pytest.mark.parametrize("point", BEFORE_THE_LINEAGE)
def test_it_is_killed_before_its_lineage_begins_at(job: StatefulScenario, point: str) -> None:
    assert job.kill_at(point, 1) == [point]
    assert not job.rows(QUERY) - expected()[QUERY]
    assert job.lineages(QUERY) == []


@pytest.mark.parametrize("point", AFTERWARDS)
def test_it_is_killed_afterwards_at(job: StatefulScenario, point: str) -> None:
    assert job.kill_at(point, 1) == [point]
    assert not job.rows(QUERY) - expected()[QUERY]
    assert len(job.lineages(QUERY)) == 1


def test_rows_and_state_are_those_of_an_undisturbed_run(
    job: StatefulScenario,
    kafka: KafkaService,
    mysql: MySqlService,
    topics: dict[str, str],
    tmp_path: Path,
) -> None:
    job.finish()
    undisturbed = StatefulScenario(kafka, mysql, topics, tmp_path, [QUERY])
    undisturbed.finish()
    found, wanted = job.outcome(QUERY), undisturbed.outcome(QUERY)
    assert found.rows == wanted.rows == expected()[QUERY]
    assert found.state == wanted.state
    assert all(wanted.state)
    assert max(found.batches) == max(wanted.batches)
    assert found.batches.items() <= wanted.batches.items()
    assert job.prepared() == []
