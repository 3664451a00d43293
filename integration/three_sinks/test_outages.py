"""One of three sinks fails: before the decision all abort, after it the others commit and the job
holds until it is mended.

The tests of this module run in order on one driver, which stops itself at a crash point, so that
the fault falls there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import delta_lake
from harness.order_files import BATCH
from harness.three_targets import DELTA, HIVE, MYSQL, SINKS
from integration.three_sinks.scenario import ThreeDriver, ThreeSinksScenario
from twophase.errors import StopJobError
from twophase.testing.services import MySqlService

pytestmark = [
    pytest.mark.part("several_sinks"),
    pytest.mark.proof,
    pytest.mark.timeout(1800),
    pytest.mark.relay,
]

JOB = "orders"
RETRIES = 4
# One for each test of the first driver. The attempt that fails at C02 passes no more of them.
ARM = "C02=stop@1,C11=stop@1,D02=stop@2"
OPTIONS = {"restart.delay": "100 ms", "commit.backoff": "50 ms"}


@pytest.fixture(scope="module")
def scenario(
    own_mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory
) -> ThreeSinksScenario:
    return ThreeSinksScenario(own_mysql, tmp_path_factory.mktemp("outages"), [JOB])


@pytest.fixture(scope="module")
def driver(scenario: ThreeSinksScenario) -> Iterator[ThreeDriver]:
    driver = scenario.start(ARM, forever=True, options=OPTIONS)
    try:
        yield driver
    finally:
        driver.kill()


def everywhere(rows: int) -> dict[str, int]:
    return dict.fromkeys(SINKS, rows)


def aborted(scenario: ThreeSinksScenario) -> int:
    return sum(
        len(scenario.entries(JOB, kind)) for kind in ("CheckpointDeclined", "OrphansAborted")
    )


def holds(scenario: ThreeSinksScenario, driver: ThreeDriver, sink: str) -> None:
    """The job asks one sink again, ever more slowly, and says so; nothing aborts, and no other
    checkpoint begins.
    """
    before, triggered = aborted(scenario), len(scenario.entries(JOB, "CheckpointTriggered"))
    driver.wait_for(lambda: len(retried(scenario, sink)) >= RETRIES, f"{RETRIES} retries of {sink}")
    found = retried(scenario, sink)
    assert all(fields["reason"] for fields in found)
    assert [fields["retries"] for fields in found] == [*range(1, len(found) + 1)]
    assert all(
        later["next_in_s"] > sooner["next_in_s"] for sooner, later in itertools.pairwise(found)
    )
    assert aborted(scenario) == before
    assert len(scenario.entries(JOB, "CheckpointTriggered")) == triggered


def retried(scenario: ThreeSinksScenario, sink: str) -> list[dict[str, Any]]:
    return [
        entry.fields
        for entry in scenario.entries(JOB, "CommitRetried")
        if entry.fields["sink"] == sink
    ]


def metadata(table: Path) -> dict[str, Any]:
    """What a Delta table is like, by the newest commit that says it."""
    found = [
        action["metaData"]
        for commit in delta_lake.commits(table)
        for action in delta_lake.actions(commit)
        if "metaData" in action
    ]
    return dict(found[-1])


def alter(table: Path, changed: dict[str, Any]) -> None:
    """Make a Delta table like this, by a commit of its own, as another program would."""
    newest = delta_lake.commits(table)[-1]
    with newest.with_name(f"{int(newest.stem) + 1:020d}.json").open("x") as file:
        file.write(json.dumps({"metaData": changed}) + "\n")


def test_a_sink_that_fails_before_the_decision_aborts_all(
    scenario: ThreeSinksScenario, driver: ThreeDriver, own_mysql: MySqlService
) -> None:
    scenario.produce(1)
    driver.wait_until_stopped("C02")
    own_mysql.kill()
    driver.thaw()
    try:
        driver.wait_for(
            lambda: bool(scenario.entries(JOB, "CheckpointDeclined")), "a declined checkpoint"
        )
        assert scenario.targets(JOB).rows(DELTA, HIVE) == {DELTA: 0, HIVE: 0}
    finally:
        own_mysql.restart()
    driver.wait_until_stopped("C11")
    assert scenario.targets(JOB).rows() == everywhere(0)
    decided = [
        entry for entry in scenario.entries(JOB, "CheckpointDecided") if entry.fields["rows"]
    ]
    assert [entry.fields["checkpoint"] for entry in decided] == [0]


def test_mysql_is_down_after_the_decision(
    scenario: ThreeSinksScenario, driver: ThreeDriver, own_mysql: MySqlService
) -> None:
    """The driver is stopped where the first checkpoint with rows is decided."""
    tables = scenario.targets(JOB)
    own_mysql.kill()
    driver.thaw()
    try:
        holds(scenario, driver, MYSQL)
        assert tables.rows(DELTA, HIVE) == {DELTA: BATCH, HIVE: BATCH}
    finally:
        own_mysql.restart()
    driver.wait_for(lambda: tables.rows() == everywhere(BATCH), "MySQL to have it too")


def test_without_the_disk_of_the_hive_table_the_job_stops_after_the_decision_and_with_it_has_all(
    scenario: ThreeSinksScenario, driver: ThreeDriver
) -> None:
    """Nobody can tell a disk that comes back from a table that was dropped. The
    others have committed.
    """
    tables = scenario.targets(JOB)
    before = aborted(scenario)
    driver.freeze()  # or a trigger may come between the files of the micro-batch
    scenario.produce(1)
    driver.thaw()
    driver.wait_until_stopped("D02")
    assert tables.rows() == {
        MYSQL: scenario.produced,
        DELTA: scenario.produced,
        HIVE: scenario.produced - BATCH,
    }
    away = tables.hive.rename(tables.hive.with_name("away"))
    driver.thaw()
    ended = driver.wait()
    away.rename(tables.hive)
    assert ended.code == StopJobError.exit_code, ended.output
    assert "is gone, with all pre-committed rows" in ended.output
    assert (aborted(scenario), retried(scenario, HIVE)) == (before, [])
    assert tables.rows() == everywhere(scenario.produced) | {HIVE: scenario.produced - BATCH}
    scenario.finish(options=OPTIONS)
    assert tables.rows() == everywhere(scenario.produced)


def test_an_altered_delta_table_stops_the_job_and_mended_it_has_all(
    scenario: ThreeSinksScenario,
) -> None:
    """Nothing that waiting would mend: the job stops and says what to undo. The others have
    committed nevertheless.
    """
    tables = scenario.targets(JOB)
    driver = scenario.start("D01=stop@1", forever=True, options=OPTIONS)
    scenario.produce(1)
    driver.wait_until_stopped("D01")
    before = metadata(tables.delta)
    schema = json.loads(before["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "amount"]
    alter(tables.delta, before | {"schemaString": json.dumps(schema)})
    driver.thaw()
    ended = driver.wait()
    assert ended.code == StopJobError.exit_code, ended.output
    assert "column 'amount' was dropped or renamed" in ended.output
    assert tables.rows(MYSQL, HIVE) == {MYSQL: scenario.produced, HIVE: scenario.produced}
    alter(tables.delta, before)
    assert tables.rows() == everywhere(scenario.produced) | {DELTA: scenario.produced - BATCH}
    scenario.finish(options=OPTIONS)
    assert scenario.recovered(JOB) == [everywhere(scenario.produced)]
    scenario.verify()
