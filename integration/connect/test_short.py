"""The plugin form over Spark Connect with SIGKILL: of the client and the server, of the client
alone, and of the server alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.nemesis import Ended, held_at
from integration.connect.scenario import (
    ConnectScenario,
    ConnectServer,
    serving,
    wait_until_held,
)
from integration.plugin.driver import DIED_WHILE_IT_ANSWERED, WRITE_STREAM
from integration.plugin.scenario import (
    TIMEOUT_S,
    Made,
    in_files,
    in_iceberg,
    in_mysql,
    in_topics,
)
from integration.without_spark.targets import Target
from twophase.errors import ConfigError, PreflightError, RejectedRowsError
from twophase.spark.plan import shuffles
from twophase.spark_versions import LIMITED_READS
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("plugin")

BATCH = 400
UNDECIDED = ("C05",)
DECIDED = ("C11",)
# Each holds the first query that gets there: three in checkpoint 0, the last in checkpoint 1.
HELD = {"C05": 1, "C14": 1, "C16": 1, "C11": 2}

OFF_BY_DEFAULT = pytest.mark.skipif(LIMITED_READS.is_here, reason="Spark 4.2 has it on by default")


@pytest.fixture
def scenario(kafka: KafkaService, mysql: MySqlService, tmp_path: Path) -> ConnectScenario:
    return ConnectScenario(kafka, in_mysql(mysql), tmp_path, records_per_batch=BATCH)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


def test_client_and_server_are_killed_and_every_query_has_every_record_once(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> None:
    points = (*UNDECIDED, *DECIDED)
    scenario = ConnectScenario(kafka, in_mysql(mysql), tmp_path, len(points), BATCH)
    scenario.produce(2 * BATCH)
    # A writer is held in checkpoint 0, a driver in checkpoint 1.
    arm = f"{held_at(UNDECIDED)},{held_at(DECIDED, 2)}"
    scenario.kill_when_held(arm, points, master="local[4]")
    scenario.no_row_is_duplicated()
    assert scenario.newest_decided() == [-1] * len(UNDECIDED) + [1] * len(DECIDED)
    scenario.finish()
    scenario.verify()


def test_a_query_goes_on_without_its_client_and_another_client_takes_it_over(
    scenario: ConnectScenario, server: ConnectServer
) -> None:
    [job] = scenario.jobs

    def is_written() -> bool:
        return len(scenario.targets[job].rows()) == scenario.produced

    scenario.produce(BATCH)
    first = scenario.client(server, forever=True)
    try:
        first.wait_for(is_written, "the first records", TIMEOUT_S)
    finally:
        first.kill()
    scenario.produce(BATCH)
    server.wait_for(is_written, "what came after the client had died", TIMEOUT_S)
    scenario.produce(BATCH)
    scenario.finished(lambda: scenario.client(server).wait(TIMEOUT_S))
    scenario.verify()


def test_the_server_alone_is_killed_and_its_client_goes_on_with_each_sink_exactly_once(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> None:
    each: list[Made[Target]] = [in_mysql(mysql), in_files, in_iceberg, in_topics(kafka)]
    sinks = iter(each)
    scenario = ConnectScenario(
        kafka, lambda job, folder: next(sinks)(job, folder), tmp_path, len(HELD), BATCH
    )
    scenario.produce(2 * BATCH)
    arm = ",".join(held_at([point], hit) for point, hit in HELD.items())
    with closing(scenario), serving(tmp_path, arm, "local[4]") as server:
        client = scenario.client(server)
        try:
            wait_until_held(server, client, HELD)
            server.kill()
            scenario.no_row_is_duplicated()
            assert scenario.newest_decided() == [-1, 0, 0, 1]
            with serving(tmp_path, port=server.port) as again:
                waiting = [client]

                def run() -> Ended:
                    """The client that waits, if there is one."""
                    return (waiting.pop() if waiting else scenario.client(again)).wait(TIMEOUT_S)

                scenario.finished(run)
        finally:
            client.kill()
        said = client.log.read_text()
        at_rest = "SparkConnectException: [NO_ACTIVE_SESSION]" in said
        assert at_rest or f"PySparkRuntimeError: {DIED_WHILE_IT_ANSWERED}" in said
        scenario.verify()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"surprise": "1"}, ConfigError, "surprise"),
        ({"table": "tight"}, RejectedRowsError, "customer"),
    ],
    ids=["an option", "the rows"],
)
def test_what_the_server_refuses_is_a_named_error_in_the_client(
    scenario: ConnectScenario,
    server: ConnectServer,
    options: dict[str, str],
    error: type[ConfigError] | type[RejectedRowsError],
    said: str,
) -> None:
    [job] = scenario.jobs
    scenario.table(job).sql(
        "CREATE TABLE tight (id BIGINT, customer VARCHAR(3), amount DOUBLE, kafka_partition INT, "
        "kafka_offset BIGINT) ENGINE=InnoDB"
    )
    scenario.produce(BATCH)
    scenario.settings["jobs"][job]["options"] |= options
    ended = scenario.client(server).wait(TIMEOUT_S)
    assert ended.code == error.exit_code, ended.output
    assert f"{error.__name__}: " in ended.output
    assert said in ended.output


@pytest.mark.parametrize("value", ["false", pytest.param(None, marks=OFF_BY_DEFAULT)])
def test_a_query_is_refused_where_a_shuffle_could_mix_rows_and_runs_with_the_setting_it_asks_for(
    scenario: ConnectScenario, server: ConnectServer, value: str | None
) -> None:
    """The server has the setting; the session changes it."""
    scenario.produce(BATCH)
    ended = scenario.client(server, conf={shuffles.FULL_RETRY: value}).wait(TIMEOUT_S)
    assert ended.code == PreflightError.exit_code, ended.output
    assert f'Next: set spark.conf.set("{shuffles.FULL_RETRY}", True)' in ended.output
    scenario.no_row_is_duplicated()
    assert scenario.newest_decided() == [-1]
    as_told = {shuffles.FULL_RETRY: True}
    scenario.finished(lambda: scenario.client(server, conf=as_told).wait(TIMEOUT_S))
    scenario.verify()


def test_write_stream_is_refused_and_names_the_form_that_the_other_tests_use(
    scenario: ConnectScenario, server: ConnectServer
) -> None:
    [job] = scenario.jobs
    plugin = scenario.settings["jobs"][job]
    scenario.settings["jobs"][job] = {"format": WRITE_STREAM}
    ended = scenario.client(server).wait(TIMEOUT_S)
    assert ended.code == ConfigError.exit_code, ended.output
    assert "belongs to a Spark Connect session" in ended.output
    assert "twophase.register(spark), then df.writeStream.format('twophase-mysql')" in ended.output
    assert plugin["format"] == "twophase-mysql"
    scenario.settings["jobs"][job] = plugin
    scenario.produce(BATCH)
    scenario.finished(lambda: scenario.client(server).wait(TIMEOUT_S))
    scenario.verify()
