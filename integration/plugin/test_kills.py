"""The plugin form with SIGKILL at every crash point, on real Kafka, Spark and MySQL: nothing lost,
nothing duplicated. In the driver's own process, over Spark Connect, and in a declarative pipeline.

Each round starts one driver with several queries, holds each at another crash point, and kills all
at once: the driver (over Spark Connect the client), its JVM (the server), and the Python process
that Spark has started for the query. The next driver recovers what that left and goes on. After a
kill no row may be duplicated; at the end every record must be in every table once, and nothing is
pre-committed any more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.connect.scenario import ConnectScenario
from integration.pipelines.scenario import PipelineScenario
from integration.plugin.scenario import Made, PluginScenario, in_files, in_mysql
from integration.without_spark.targets import Target
from twophase.testing.services import KafkaService, MySqlService

pytestmark = [pytest.mark.part("plugin"), pytest.mark.proof]

BATCH = 400
# The first leaves two queries with two pieces each without a decision (C03, C05), and decided ones.
# So C20, between two aborts, and C19, after a commit, are met in the recoveries of the second,
# where no earlier point (C18, C22) holds those queries.
_ROUNDS = {
    "mysql": (
        ("C03", "C04", "C05", "C06", "C11", "C12", "C14"),
        ("C19", "C20", "C01", "C02", "C15", "C16", "C17"),
        ("C18", "C22", "C07", "C08", "C09", "C10", "C13"),
    ),
    "file": (
        ("C03", "C04", "C05", "C06", "C11", "F01", "F02"),
        ("C19", "C20", "C01", "C02", "C09", "C16", "C17"),
        ("C18", "C22", "C07", "C08", "C12", "C13", "F04"),
        ("C10", "C14", "C15", "F03"),
    ),
}
WAYS: dict[str, type[PluginScenario]] = {
    "mysql": PluginScenario,
    "file": PluginScenario,
    "mysql, connect": ConnectScenario,
    "mysql, pipeline": PipelineScenario,
}
ROUNDS = {way: _ROUNDS[way.partition(",")[0]] for way in WAYS}
QUERIES = 7
# The worker itself dies, and Spark runs its task again; after E02 the first attempt has left a
# piece behind (E03).
OF_WORKER = ("E01", "E02")
# A worker that is held keeps a slot of Spark's.
HELD_AND_FREE_SLOTS = "local[8]"


@pytest.fixture(scope="module", params=WAYS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def scenario(
    kind: str, kafka: KafkaService, mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory
) -> PluginScenario:
    made: Made[Target] = in_files if kind == "file" else in_mysql(mysql)
    scenario = WAYS[kind](kafka, made, tmp_path_factory.mktemp("jobs"), QUERIES, BATCH)
    scenario.produce(BATCH)
    scenario.finish()  # a kill in the first micro-batch of a job is what `test_plugin_short` has
    return scenario


@pytest.mark.relay("kind")
def test_every_query_is_killed_at_another_point_and_no_row_is_duplicated(
    scenario: PluginScenario, kind: str
) -> None:
    for points in ROUNDS[kind]:
        scenario.produce(3 * BATCH)
        scenario.kill_at(points, master=HELD_AND_FREE_SLOTS)
        scenario.no_row_is_duplicated()


@pytest.mark.relay("kind")
def test_workers_die_too_and_in_the_end_every_record_arrives_once_and_nothing_is_left(
    scenario: PluginScenario, kind: str
) -> None:
    scenario.produce(BATCH)
    ended = scenario.finish(",".join(f"{point}=kill@1" for point in OF_WORKER), master="local[4,4]")
    assert {*ended.points} == {*OF_WORKER}
    assert scenario.hit == {point for points in ROUNDS[kind] for point in points}
    scenario.verify()
    for job in scenario.jobs:
        assert scenario.history(job).uncommitted() == []


def test_without_the_protocol_the_same_kill_shows_duplicates(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> None:
    """The negative control: the same kill and the same checker, a sink whose
    tasks write visibly.
    """
    scenario = PluginScenario(kafka, in_mysql(mysql), tmp_path, records_per_batch=BATCH)
    scenario.control()
    scenario.produce(BATCH)
    scenario.kill_at(["CONTROL"])
    scenario.finish()
    verdict = scenario.verdict(scenario.jobs[0])
    assert verdict.duplicated == BATCH, verdict
    assert not verdict.exact
