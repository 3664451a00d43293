"""Rows that are shuffled by chance, on a Spark cluster: what is computed again after a death lies
in other partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nemesis import DriverProcess
from integration.cluster.cluster import Cluster, executor_of
from integration.mysql.driver import SHUFFLED
from integration.mysql.scenario import Scenario
from twophase.spark.plan import shuffles
from twophase.testing.services import KafkaService, MySqlService
from twophase.testing.sessions import kill

pytestmark = [pytest.mark.part("cluster"), pytest.mark.proof]

BATCH = 1000
# What stands still must not pass for what has failed.
PATIENT = {"spark.python.authenticate.socketTimeout": "120s"}
ABORTED = "A shuffle map stage with indeterminate output was failed and retried"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield cluster
    cluster.stop()


class ScatteredScenario(Scenario):
    """A job whose rows are spread over two tasks by chance, on a cluster of two slots: each
    executor holds half of them.
    """

    def on(self, cluster: Cluster, conf: dict[str, str] | None = None) -> ScatteredScenario:
        """Have it run there, on input for one micro-batch, and Spark tell what it does."""
        cluster.bring_back()
        self.settings |= {"master": cluster.master, "scattered": True, "log_level": "INFO"}
        self.conf = cluster.conf | PATIENT | (conf or {})
        self.produce(BATCH)
        return self

    def wait_until_all_is_written(self, driver: DriverProcess) -> None:
        """As many rows as records in every sink, and nothing left prepared."""
        sinks = list(self.servers)
        driver.wait_for(
            lambda: all(self.count(sink) == self.produced for sink in sinks),
            "all records in every sink",
        )
        driver.wait_for(
            lambda: not any(self.prepared(sink) for sink in sinks),
            "what is left prepared to be aborted",
        )


class Scheduler:
    """What Spark's scheduler has logged in a driver's log."""

    def __init__(self, driver: DriverProcess) -> None:
        self._log = driver.log

    def logged(self, pattern: str) -> list[str]:
        """All lines that it has logged of this."""
        return re.findall(pattern, self._log.read_text(errors="replace"))

    def reported(self) -> int:
        """How many tasks of the first stage that reads what was shuffled have reported, in
        its first attempt.
        """
        stages = self.logged(r"Submitting \d+ missing tasks from ResultStage (\d+)")
        return (
            len(self.logged(rf"Finished task \d+\.\d+ in stage {stages[0]}\.0 ")) if stages else 0
        )

    def shuffled_again(self) -> int:
        """How many map tasks have ended in another attempt of their stage."""
        stages = set(self.logged(r"Submitting \d+ missing tasks from ShuffleMapStage (\d+)"))
        return sum(
            len(self.logged(rf"Finished task \d+\.\d+ in stage {stage}\.[1-9]")) for stage in stages
        )


@pytest.mark.parametrize(
    "sinks",
    [
        pytest.param(["facts"], id="one sink"),
        pytest.param(["facts", "copy"], id="two sinks"),
    ],
)
def test_rows_are_shuffled_again_after_a_task_has_reported(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, cluster: Cluster, sinks: list[str]
) -> None:
    """With one sink the task has pre-committed; with two it has computed what both are to write."""
    scenario = ScatteredScenario(kafka, dict.fromkeys(sinks, mysql), tmp_path).on(cluster)
    driver = scenario.start(f"{SHUFFLED}=stop@1")
    scheduler = Scheduler(driver)
    try:
        [reading] = driver.wait_until_stopped(SHUFFLED)
        driver.wait_for(lambda: scheduler.reported() == 1, "the other task to report")
        assert len(scenario.prepared("facts")) == (1 if len(sinks) == 1 else 0)
        assert not scheduler.shuffled_again()
        kill(executor_of(reading))
        scenario.wait_until_all_is_written(driver)
        scenario.verify()
        assert scheduler.shuffled_again()
        assert scheduler.logged(ABORTED), (
            "Spark has mixed rows of two computations, or the scenario has not happened"
        )
    finally:
        driver.kill()


def test_without_spark_s_notice_rows_are_lost_and_doubled(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, cluster: Cluster
) -> None:
    """The negative control: the same death, and neither Spark nor the product looks."""
    scenario = ScatteredScenario(kafka, {"facts": mysql}, tmp_path).on(
        cluster, {shuffles.FULL_RETRY: "false"}
    )
    driver = scenario.start(f"{SHUFFLED}=stop@1", unchecked=True)
    scheduler = Scheduler(driver)
    try:
        [reading] = driver.wait_until_stopped(SHUFFLED)
        driver.wait_for(lambda: scheduler.reported() == 1, "the other task to report")
        kill(executor_of(reading))
        driver.wait_for(
            lambda: scenario.count("facts") > 0 and not scenario.prepared("facts"),
            "the checkpoint to be committed",
        )
    finally:
        driver.kill()
    assert scheduler.shuffled_again()
    verdict = scenario.verdict("facts")
    assert verdict.lost > 0, verdict
    assert verdict.duplicated > 0, verdict
