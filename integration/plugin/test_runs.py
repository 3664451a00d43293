"""The plugin form on real Kafka and MySQL: runs that end, are overtaken, and begin again."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.nemesis import thaw
from integration.plugin.scenario import PluginScenario, in_mysql
from twophase.errors import FencedError
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [pytest.mark.part("plugin"), pytest.mark.proof]

BATCH = 400


@pytest.fixture
def scenario(kafka: KafkaService, mysql: MySqlService, tmp_path: Path) -> PluginScenario:
    scenario = PluginScenario(kafka, in_mysql(mysql), tmp_path, records_per_batch=BATCH)
    scenario.produce(2 * BATCH)
    return scenario


def test_every_record_arrives_once_and_each_run_has_one_fence(scenario: PluginScenario) -> None:
    [job] = scenario.jobs
    for run in (1, 2):
        scenario.finish()
        scenario.verify()
        assert scenario.history(job).generation == run
        scenario.produce(BATCH)
    assert scenario.history(job).uncommitted() == []


def test_c16_a_decided_micro_batch_that_spark_runs_again_is_not_written_again(
    scenario: PluginScenario,
) -> None:
    """H12: the driver dies after the commit, before Spark's commit log."""
    [job] = scenario.jobs
    scenario.finish()
    scenario.produce(BATCH)
    scenario.kill_at(["C16"])
    decided = scenario.history(job).newest(scenario.history(job).lineages[-1].id)
    assert decided is not None
    assert decided.committed
    spark = scenario.scratch / "jobs" / job / "commits"
    assert not (spark / str(decided.checkpoint)).exists()
    scenario.finish()
    scenario.verify()
    assert (spark / str(decided.checkpoint)).exists()
    assert scenario.history(job).newest(decided.lineage) == decided  # by the first run, once
    assert len(scenario.targets[job].rows()) == scenario.produced


def test_a_second_driver_takes_over_and_the_commit_of_the_first_is_refused(
    scenario: PluginScenario,
) -> None:
    """The first is stopped between its tasks and its decision, while the second does
    the same micro-batch.
    """
    scenario.finish()
    scenario.produce(BATCH)
    first = scenario.driver("C02=stop@1")
    try:
        stopped = first.wait_until_stopped("C02")
        scenario.finish()
        scenario.verify()
        thaw(stopped)
        ended = first.wait()
    finally:
        first.kill()
    assert ended.code == FencedError.exit_code, ended.output
    assert "FencedError" in ended.output
    scenario.produce(BATCH)
    scenario.finish()
    scenario.verify()
