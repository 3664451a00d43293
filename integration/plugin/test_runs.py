"""The plugin form on real Kafka and MySQL: runs that end, are overtaken, and begin again."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.nemesis import thaw
from integration.plugin.scenario import PluginArena
from twophase.errors import FencedError
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [pytest.mark.part("plugin"), pytest.mark.proof]

BATCH = 400


@pytest.fixture
def arena(kafka: KafkaService, mysql: MySqlService, tmp_path: Path) -> PluginArena:
    arena = PluginArena(kafka, mysql, tmp_path, records_per_batch=BATCH)
    arena.produce(2 * BATCH)
    return arena


def test_every_record_arrives_once_and_each_run_has_one_fence(arena: PluginArena) -> None:
    [job] = arena.jobs
    for run in (1, 2):
        arena.finish()
        arena.verify()
        assert arena.history(job).generation == run
        arena.produce(BATCH)
    assert arena.history(job).uncommitted() == []


def test_c16_a_decided_micro_batch_that_spark_runs_again_is_not_written_again(arena: PluginArena) -> None:
    """H12: the driver dies after the commit, before Spark's commit log."""
    [job] = arena.jobs
    arena.finish()
    arena.produce(BATCH)
    arena.kill_at(["C16"])
    decided = arena.history(job).newest(arena.history(job).lineages[-1].id)
    assert decided is not None
    assert decided.committed
    spark = arena.scratch / "jobs" / job / "commits"
    assert not (spark / str(decided.checkpoint)).exists()
    arena.finish()
    arena.verify()
    assert (spark / str(decided.checkpoint)).exists()
    assert arena.history(job).newest(decided.lineage) == decided  # by the first run, once
    attempts = arena.sql(f"SELECT COUNT(*) FROM {job}")
    assert attempts[0][0] == arena.produced


def test_a_second_driver_takes_over_and_the_commit_of_the_first_is_refused(arena: PluginArena) -> None:
    """The first is stopped between its tasks and its decision, while the second does the same micro-batch."""
    arena.finish()
    arena.produce(BATCH)
    first = arena.driver("C02=stop@1")
    try:
        stopped = first.wait_until_stopped("C02")
        arena.finish()
        arena.verify()
        thaw(stopped)
        ended = first.wait()
    finally:
        first.kill()
    assert ended.code == FencedError.exit_code, ended.output
    assert "FencedError" in ended.output
    arena.produce(BATCH)
    arena.finish()
    arena.verify()
