"""Bad input: an error that names the thing and the remedy, before any write where it
can be known before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness import workload
from harness.rights import secret_file
from integration.mysql import driver
from integration.mysql.scenario import Scenario
from twophase.errors import (
    BadRecordError,
    ConfigError,
    DeclinedError,
    PreflightError,
    RejectedRowsError,
    TwoPhaseError,
)
from twophase.sinks.mysql.sink import MySqlSink
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("kafka")

ROWS = 100


@pytest.fixture
def scenario(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession
) -> Scenario:
    twophase.register(spark)
    scenario = Scenario(kafka, {"facts": mysql}, tmp_path, options={"restart.strategy": "none"})
    scenario.produce(ROWS)
    return scenario


def run(
    scenario: Scenario, spark: SparkSession, frame: DataFrame | None = None, **sink: Any
) -> None:
    described = twophase.write_stream(
        frame if frame is not None else driver.read(spark, scenario.settings), name="orders"
    )
    described.sink("facts", MySqlSink(**scenario.settings["sinks"]["facts"] | sink))
    described.options(
        checkpointLocation=scenario.settings["location"], **scenario.settings["options"]
    )
    described.trigger(availableNow=True).start().await_termination(120)


def refused(
    scenario: Scenario, what: Callable[[], None], kind: type[TwoPhaseError], *words: str
) -> None:
    """`what` raises `kind` with all `words`, and nothing was written: no row, nothing prepared."""
    with pytest.raises(kind) as caught:
        what()
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert scenario.count("facts") == 0
    assert scenario.prepared("facts") == []


def test_an_unknown_job_option(scenario: Scenario, spark: SparkSession) -> None:
    scenario.settings["options"]["checkpoint.tolerable_failure"] = 1
    refused(
        scenario,
        lambda: run(scenario, spark),
        ConfigError,
        "checkpoint.tolerable_failure",
        "did you mean",
    )


@pytest.mark.proof
def test_an_option_of_the_wrong_type(scenario: Scenario, spark: SparkSession) -> None:
    scenario.settings["options"]["checkpoint.timeout"] = "soon"
    refused(
        scenario, lambda: run(scenario, spark), ConfigError, "checkpoint.timeout", "'soon'", "10 s"
    )


@pytest.mark.proof
def test_an_unknown_sink_option(scenario: Scenario, spark: SparkSession) -> None:
    refused(scenario, lambda: run(scenario, spark, tabel="orders"), ConfigError, "tabel", "table")


@pytest.mark.proof
def test_a_missing_table(scenario: Scenario, spark: SparkSession) -> None:
    refused(scenario, lambda: run(scenario, spark, table="nowhere"), ConfigError, "nowhere")


def test_a_missing_column(scenario: Scenario, spark: SparkSession) -> None:
    scenario.sql("facts", "ALTER TABLE orders DROP COLUMN customer")
    refused(scenario, lambda: run(scenario, spark), ConfigError, "customer")


@pytest.mark.proof
def test_a_type_that_does_not_fit(scenario: Scenario, spark: SparkSession) -> None:
    scenario.sql("facts", "ALTER TABLE orders MODIFY customer INT")
    refused(scenario, lambda: run(scenario, spark), ConfigError, "customer")


@pytest.mark.proof
def test_a_wrong_password(scenario: Scenario, spark: SparkSession) -> None:
    password = secret_file(scenario.scratch / "wrong", "nonsense")
    refused(
        scenario,
        lambda: run(scenario, spark, password_file=str(password)),
        TwoPhaseError,
        "Access denied",
    )


@pytest.mark.proof
def test_missing_rights(scenario: Scenario, spark: SparkSession, mysql: MySqlService) -> None:
    user = scenario.databases["facts"][:20]
    scenario.sql(
        "facts", f"CREATE USER '{user}'@'%' IDENTIFIED WITH mysql_native_password BY 'secret-word'"
    )
    scenario.sql("facts", f"GRANT SELECT ON {scenario.databases['facts']}.* TO '{user}'@'%'")
    password = secret_file(scenario.scratch / "reader", "secret-word")
    url = f"mysql://{user}@{mysql.host}:{mysql.port}/{scenario.databases['facts']}"
    refused(
        scenario,
        lambda: run(scenario, spark, url=url, password_file=str(password)),
        PreflightError,
        "GRANT",
    )


@pytest.mark.proof
def test_a_missing_topic(scenario: Scenario, spark: SparkSession) -> None:
    scenario.settings["topic"] = "no-such-topic"
    refused(scenario, lambda: run(scenario, spark), TwoPhaseError, "no-such-topic")


def test_malformed_json_names_the_record(
    scenario: Scenario, spark: SparkSession, kafka: KafkaService
) -> None:
    workload.send(kafka.bootstrap_servers, scenario.topic, b'{"id": 1, "customer": ', partition=1)
    refused(scenario, lambda: run(scenario, spark), TwoPhaseError, scenario.topic, "offset 50")


@pytest.mark.proof
def test_a_malformed_record_stops_every_start_until_it_may_be_left_out(
    scenario: Scenario, spark: SparkSession, kafka: KafkaService
) -> None:
    workload.send(kafka.bootstrap_servers, scenario.topic, b'{"id": 1, "customer": ', partition=1)
    for _ in range(2):
        refused(
            scenario,
            lambda: run(scenario, spark),
            BadRecordError,
            "offset 50",
            '.option("json.on_error", "drop")',
        )
    scenario.settings["source"] = {"json.on_error": "drop"}
    run(scenario, spark)
    rows = scenario.sql("facts", "SELECT kafka_partition, kafka_offset FROM orders ORDER BY 1, 2")
    assert [tuple(row) for row in rows] == [
        (partition, offset) for partition in (0, 1) for offset in range(ROWS // 2)
    ]


def test_a_duplicate_key_is_declined_and_named_never_skipped(
    scenario: Scenario, spark: SparkSession, kafka: KafkaService
) -> None:
    scenario.sql("facts", "ALTER TABLE orders ADD PRIMARY KEY (id)")
    again = json.dumps({"id": 41, "customer": "again", "amount": 1}).encode()
    workload.send(kafka.bootstrap_servers, scenario.topic, again, partition=1)
    refused(scenario, lambda: run(scenario, spark), RejectedRowsError, "Duplicate entry '41'")


@pytest.mark.proof
def test_a_value_that_does_not_fit_is_declined_and_named_never_clipped(
    scenario: Scenario, spark: SparkSession
) -> None:
    scenario.sql("facts", "ALTER TABLE orders MODIFY customer VARCHAR(5)")
    refused(scenario, lambda: run(scenario, spark), DeclinedError, "customer")


@pytest.mark.proof
def test_a_plain_dataframe_is_refused(scenario: Scenario, spark: SparkSession) -> None:
    refused(scenario, lambda: run(scenario, spark, spark.range(3)), ConfigError, "not streaming")


def test_no_secret_is_in_the_error_of_a_failed_login(
    scenario: Scenario, spark: SparkSession
) -> None:
    password = secret_file(scenario.scratch / "canary", "canary-7f3a")
    with pytest.raises(TwoPhaseError) as caught:
        run(scenario, spark, password_file=str(password))
    assert "canary-7f3a" not in str(caught.value)
    assert "canary-7f3a" not in repr(caught.value.__cause__)
