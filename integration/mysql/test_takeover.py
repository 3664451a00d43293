"""Who may write: a second driver, pieces touched by hand after the decision, folders
restored, a restore.

What needs no Spark is in `plain/test_takeover.py` too, which `make test` takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.branches import branches
from integration.mysql.scenario import Scenario
from twophase.errors import FencedError
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.proof]

BATCH = 1000


@pytest.fixture
def scenario(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession
) -> Iterator[Scenario]:
    scenario = Scenario(kafka, {"facts": mysql}, tmp_path, spark=spark)
    scenario.produce(BATCH)
    yield scenario
    scenario.abandon()


def test_a_second_driver_takes_over_and_the_first_is_fenced_out(scenario: Scenario) -> None:
    first = scenario.start()
    first.wait_for(lambda: scenario.count("facts") == BATCH, "the first driver to write")
    before = scenario.history().generation
    second = scenario.start()
    second.wait_for(
        lambda: scenario.history().generation > before, "the second driver to append its fence"
    )

    def has_arrived(expected: int) -> bool:
        return scenario.count("facts") >= expected

    fenced = None
    while fenced is None:
        scenario.produce(BATCH)
        second.wait_for(partial(has_arrived, scenario.produced), "the new records", 120)
        if not first.running:
            fenced = first.wait()
    assert fenced.code == FencedError.exit_code, fenced.output
    assert "FencedError" in fenced.output
    scenario.produce(BATCH)
    second.wait_for(
        lambda: scenario.count("facts") == scenario.produced, "the second driver to go on"
    )
    second.kill()
    scenario.finish()
    scenario.verify()


def decided_uncommitted(scenario: Scenario) -> list[str]:
    """Bring the job to a decided checkpoint whose pieces are all still prepared."""
    scenario.finish()
    scenario.produce(BATCH)
    assert scenario.run("C11=kill@1").killed
    prepared = scenario.prepared("facts")
    assert len(prepared) == 2
    return prepared


def by_hand(scenario: Scenario, verb: str) -> None:
    """Resolve one prepared branch as an administrator would."""
    scenario.sql("facts", f"XA {verb} {branches(scenario.servers['facts'])[0]}")


def test_a_branch_rolled_back_by_hand_after_the_decision_is_a_named_error(
    scenario: Scenario,
) -> None:
    decided_uncommitted(scenario)
    by_hand(scenario, "ROLLBACK")
    ended = scenario.run()
    assert ended.code == 3, ended.output
    assert "LostCommittableError" in ended.output
    assert "checkpoint 1 is decided, but 1 of its pieces" in ended.output
    assert "500 rows are lost" in ended.output


def test_a_branch_committed_by_hand_is_recognised(scenario: Scenario) -> None:
    decided_uncommitted(scenario)
    by_hand(scenario, "COMMIT")
    scenario.finish()
    scenario.verify()


def test_the_job_s_folder_deleted_is_a_named_error_and_writes_nothing(scenario: Scenario) -> None:
    scenario.finish()
    shutil.rmtree(scenario.scratch / "job")
    scenario.produce(BATCH)
    ended = scenario.run()
    assert ended.code == 3, ended.output
    assert "CheckpointMissingError" in ended.output
    assert scenario.count("facts") == BATCH


def test_an_old_copy_of_the_job_s_folder_is_a_named_error_and_writes_nothing(
    scenario: Scenario,
) -> None:
    scenario.finish()
    shutil.copytree(scenario.scratch / "job", scenario.scratch / "old")
    scenario.produce(BATCH)
    scenario.finish()
    shutil.rmtree(scenario.scratch / "job")
    (scenario.scratch / "old").rename(scenario.scratch / "job")
    ended = scenario.run()
    assert ended.code == 3, ended.output
    assert "CheckpointMissingError" in ended.output
    assert scenario.count("facts") == 2 * BATCH


def newest_checkpoint(scenario: Scenario) -> Path:
    (folder,) = (scenario.scratch / "job" / "chk").iterdir()
    return folder


@pytest.mark.parametrize("where", ["the same folder", "a new folder"])
def test_a_restore_begins_a_new_lineage_where_the_checkpoint_ended(
    scenario: Scenario, where: str
) -> None:
    scenario.finish()
    scenario.produce(2 * BATCH)
    scenario.finish()
    restore = {"restore.path": str(newest_checkpoint(scenario))}
    if where == "a new folder":
        scenario.settings["location"] = str(scenario.scratch / "new")
    scenario.settings["options"] |= restore
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()
    folders = [path.name for path in (Path(scenario.settings["location"]) / "spark").iterdir()]
    lineage = scenario.history().lineage
    assert lineage is not None
    assert folders == [lineage.id], "Spark's folder of the lineage that was left is of no more use"


def test_a_restore_commits_what_the_checkpoint_left_prepared(scenario: Scenario) -> None:
    decided_uncommitted(scenario)
    folder = max(
        (scenario.scratch / "job" / "chk").iterdir(), key=lambda path: path.stat().st_mtime_ns
    )
    scenario.settings["location"] = str(scenario.scratch / "new")
    scenario.settings["options"] |= {"restore.path": str(folder)}
    scenario.finish()
    scenario.verify()


def test_a_restore_from_before_what_the_sink_has_is_refused(scenario: Scenario) -> None:
    scenario.finish()
    shutil.copytree(scenario.scratch / "job", scenario.scratch / "old")
    scenario.produce(BATCH)
    scenario.finish()
    (old,) = (scenario.scratch / "old" / "chk").iterdir()
    scenario.settings["location"] = str(scenario.scratch / "new")
    scenario.settings["options"] |= {"restore.path": str(old)}
    ended = scenario.run()
    assert ended.code == 3, ended.output
    assert "cannot restore" in ended.output
    assert scenario.count("facts") == 2 * BATCH
