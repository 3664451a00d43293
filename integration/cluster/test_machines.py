"""The same job on a standalone Spark cluster: executors and whole machines die,
freeze and come back.

The tests of this module run in order on one job, and take over from each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.checker import compare
from harness.nemesis import DriverProcess, Frozen, thaw
from harness.spark_features import needs
from harness.three_targets import DELTA, HIVE, MYSQL, SINKS
from integration.cluster.cluster import Cluster, executor_of
from integration.mysql.scenario import Scenario
from integration.three_sinks.driver import IN_DELTA_TASK
from integration.three_sinks.scenario import ThreeSinksScenario
from twophase.spark_versions import DELTA as DELTA_SINK
from twophase.spark_versions import LIMITED_READS
from twophase.testing.services import KafkaService, MySqlService
from twophase.testing.sessions import is_gone, kill

pytestmark = [pytest.mark.part("cluster"), pytest.mark.proof]

BATCH = 1000
LOST_ROWS = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
IMPATIENT = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
}
SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
}
JOB = "orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield cluster
    cluster.stop()


def on(cluster: Cluster, scenario: Scenario, conf: dict[str, str]) -> Scenario:
    cluster.bring_back()
    scenario.settings["master"] = cluster.master
    scenario.conf = cluster.conf | conf
    return scenario


@pytest.fixture(scope="module")
def one_sink(
    kafka: KafkaService, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory
) -> Scenario:
    return Scenario(kafka, {"facts": mysql}, tmp_path_factory.mktemp("job"))


def wait_until_all_is_written(driver: DriverProcess, scenario: Scenario) -> None:
    sinks = list(scenario.servers)
    driver.wait_for(
        lambda: all(scenario.count(sink) == scenario.produced for sink in sinks),
        "all records in every sink",
    )
    driver.wait_for(
        lambda: not any(scenario.prepared(sink) for sink in sinks),
        "what is left prepared to be aborted",
    )
    scenario.verify()


@pytest.fixture(scope="module")
def orphan(cluster: Cluster, one_sink: Scenario) -> psutil.Process:
    """A Python worker in the middle of a branch that outlives its driver and its executor; the
    other task has prepared.
    """
    scenario = on(cluster, one_sink, {})
    scenario.produce(BATCH)
    driver = scenario.start("E01=stop@1")
    try:
        [worker] = driver.wait_until_stopped("E01")
        driver.wait_for(lambda: len(scenario.prepared("facts")) == 1, "the other task to prepare")
    finally:
        driver.kill()
    return worker


def test_executors_die_before_during_and_after_prepare(
    cluster: Cluster, one_sink: Scenario, orphan: psutil.Process
) -> None:
    """In one checkpoint, of each of its two tasks the first two attempts die. A machine is
    lost with the last.
    """
    scenario = on(cluster, one_sink, {})
    driver = scenario.start("E01=stop@1,C04=stop@1,C05=stop@1,E02=stop@1")
    try:
        [writing] = driver.wait_until_stopped("E01")
        [preparing] = driver.wait_until_stopped("C04")
        kill(executor_of(writing))
        [prepared] = driver.wait_until_stopped("C05")
        kill(executor_of(preparing))
        [reporting] = driver.wait_until_stopped("E02")
        assert len(scenario.prepared("facts")) == 2
        kill(executor_of(prepared))
        lost = cluster.machine_of(reporting)
        lost.kill()
        wait_until_all_is_written(driver, scenario)

        cluster.bring_back()
        driver.wait_for(
            lambda: len(lost.executors()) == 1, "an executor on the machine that came back"
        )
        thaw([orphan])
        driver.wait_for(lambda: is_gone(orphan), "the worker of the first driver to end")
        scenario.produce(BATCH)
        wait_until_all_is_written(driver, scenario)
    finally:
        driver.kill()


def test_a_machine_that_was_given_up_pre_commits_late(cluster: Cluster, one_sink: Scenario) -> None:
    scenario = on(cluster, one_sink, IMPATIENT)
    scenario.produce(BATCH)
    driver = scenario.start("C04=stop@1")
    try:
        [preparing] = driver.wait_until_stopped("C04")
        machine = cluster.machine_of(preparing)
        with Frozen(machine.family):
            wait_until_all_is_written(driver, scenario)
            thaw([preparing])
            driver.wait_for(
                lambda: len(scenario.prepared("facts")) == 1, "the late branch to be prepared"
            )
        scenario.produce(BATCH)
        wait_until_all_is_written(driver, scenario)
    finally:
        driver.kill()


def win_by_speculation(scenario: Scenario) -> None:
    """A task that has prepared is never let go: another attempt completes the checkpoint."""
    scenario.produce(BATCH)
    driver = scenario.start("C05=stop@1")
    try:
        driver.wait_until_stopped("C05")
        wait_until_all_is_written(driver, scenario)
    finally:
        driver.kill()


def test_the_second_attempt_of_a_task_wins_by_speculation(
    cluster: Cluster, one_sink: Scenario
) -> None:
    win_by_speculation(on(cluster, one_sink, SPECULATIVE))


def test_rows_that_two_sinks_share_and_that_are_lost_decline_the_checkpoint(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, cluster: Cluster
) -> None:
    scenario = on(cluster, Scenario(kafka, {"facts": mysql, "copy": mysql}, tmp_path), {})
    scenario.produce(2 * BATCH)
    driver = scenario.start("E01=stop@1")
    try:
        [writing] = driver.wait_until_stopped("E01")
        kill(executor_of(writing))
        driver.wait_for(
            lambda: LOST_ROWS in driver.log.read_text(errors="replace"),
            "the checkpoint to be declined",
        )
        wait_until_all_is_written(driver, scenario)
    finally:
        driver.kill()


@pytest.fixture(scope="module")
def chain(
    kafka: KafkaService, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory
) -> Scenario:
    """Each task writes to two sinks."""
    sinks = {"facts": mysql, "copy": mysql}
    return Scenario(kafka, sinks, tmp_path_factory.mktemp("chain"), options={"chaining": "auto"})


def assert_chained(scenario: Scenario) -> None:
    """The pieces of both sinks are of the same task attempts."""
    question = "SELECT checkpoint, subtask, task_attempt FROM twophase_ledger ORDER BY 1, 2, 3"
    facts, copy = (scenario.sql(sink, question) for sink in scenario.servers)
    assert facts == copy
    assert facts


@needs(LIMITED_READS)
def test_executors_die_while_a_chain_writes_between_its_sinks_and_in_the_second_one(
    cluster: Cluster, chain: Scenario
) -> None:
    scenario = on(cluster, chain, {})
    scenario.produce(BATCH)
    driver = scenario.start("E01=stop@1,C05=stop@1,C04=stop@2")
    try:
        for point in ("E01", "C05", "C04"):
            [worker] = driver.wait_until_stopped(point)
            kill(executor_of(worker))
        wait_until_all_is_written(driver, scenario)
    finally:
        driver.kill()
    assert_chained(scenario)


@needs(LIMITED_READS)
def test_the_second_attempt_of_a_chained_task_wins_by_speculation(
    cluster: Cluster, chain: Scenario
) -> None:
    """One sink has its piece, and the other one does not."""
    win_by_speculation(on(cluster, chain, SPECULATIVE))
    assert_chained(chain)


@pytest.fixture(scope="module")
def three_sinks(
    cluster: Cluster, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory
) -> ThreeSinksScenario:
    cluster.bring_back()
    scenario = ThreeSinksScenario(mysql, tmp_path_factory.mktemp("three"), [JOB])
    scenario.conf |= cluster.conf | SPECULATIVE
    return scenario


@pytest.fixture(scope="module")
def three_driver(cluster: Cluster, three_sinks: ThreeSinksScenario) -> Iterator[DriverProcess]:
    """Its rows are other ones each time that they are computed."""
    arm = f"E02=stop@1,{IN_DELTA_TASK}=stop@1"
    driver = three_sinks.start(arm, forever=True, drawn=True, master=cluster.master)
    try:
        yield driver
    finally:
        driver.kill()


def acknowledged(scenario: ThreeSinksScenario) -> list[str]:
    """The sinks that have acknowledged the newest attempt."""
    attempts = scenario.entries(JOB, "SinkAcknowledged", "CheckpointTriggered")
    newest = max(
        place for place, entry in enumerate(attempts) if entry.kind == "CheckpointTriggered"
    )
    return sorted(entry.fields["sink"] for entry in attempts[newest + 1 :])


def wait_until_all_have_the_same_rows(driver: DriverProcess, scenario: ThreeSinksScenario) -> None:
    tables = scenario.targets(JOB)
    driver.wait_for(
        lambda: tables.rows() == dict.fromkeys(SINKS, scenario.produced),
        "all records in every sink",
    )
    driver.wait_for(
        lambda: [*tables.left(), *scenario.prepared()] == [], "what is left to be aborted"
    )
    rows = tables.orders(MYSQL)
    assert len({(row["partition"], row["offset"]) for row in rows}) == scenario.produced
    for sink in (DELTA, HIVE):
        verdict = compare(rows, tables.orders(sink))
        assert verdict.exact, f"{sink} has other rows than MySQL: {verdict}"


@needs(DELTA_SINK)
def test_the_second_attempts_of_tasks_for_hive_and_delta_win_by_speculation(
    three_sinks: ThreeSinksScenario, three_driver: DriverProcess
) -> None:
    scenario, driver = three_sinks, three_driver
    scenario.hold_back(MYSQL, DELTA)
    scenario.produce(1)
    driver.wait_until_stopped("E02")
    # It has pre-committed and is never let go.
    driver.wait_for(lambda: acknowledged(scenario) == [HIVE], "another attempt of the task to win")
    scenario.let_go(MYSQL, DELTA)
    driver.wait_until_stopped(IN_DELTA_TASK)
    wait_until_all_have_the_same_rows(driver, scenario)
    assert not scenario.entries(JOB, "CheckpointDeclined")


@needs(DELTA_SINK)
def test_executors_die_between_two_sinks_and_all_three_have_the_same_rows(
    cluster: Cluster, three_sinks: ThreeSinksScenario, three_driver: DriverProcess
) -> None:
    """H53: what the executors held of the micro-batch cannot be computed again, so the attempt is
    declined as a whole.
    """
    scenario, driver = three_sinks, three_driver
    scenario.hold_back(DELTA)
    scenario.produce(1)
    driver.wait_for(
        lambda: acknowledged(scenario) == sorted([HIVE, MYSQL]), "two sinks to acknowledge"
    )
    kill([executor for worker in cluster.workers for executor in worker.executors()])
    scenario.let_go(DELTA)
    wait_until_all_have_the_same_rows(driver, scenario)
    assert any(
        LOST_ROWS in entry.fields["cause"] for entry in scenario.entries(JOB, "CheckpointDeclined")
    )
