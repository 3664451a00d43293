"""Bad input: an error that names the thing and the remedy, before any write where it can be known before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness import workload
from integration.mysql import driver
from integration.mysql.scenario import Arena
from twophase.errors import BadRecordError, ConfigError, DeclinedError, PreflightError, RejectedRowsError, TwoPhaseError
from twophase.sinks.mysql.sink import MySqlSink
from twophase.testing.services import KafkaService, MySqlService

pytestmark = pytest.mark.part("kafka")

ROWS = 100


@pytest.fixture
def arena(kafka: KafkaService, mysql: MySqlService, tmp_path: Path, spark: SparkSession) -> Arena:
    twophase.register(spark)
    arena = Arena(kafka, {"facts": mysql}, tmp_path, options={"restart.strategy": "none"})
    arena.produce(ROWS)
    return arena


def run(arena: Arena, spark: SparkSession, frame: DataFrame | None = None, **sink: Any) -> None:
    described = twophase.write_stream(frame if frame is not None else driver.read(spark, arena.settings), name="orders")
    described.sink("facts", MySqlSink(**arena.settings["sinks"]["facts"] | sink))
    described.options(checkpointLocation=arena.settings["location"], **arena.settings["options"])
    described.trigger(availableNow=True).start().await_termination(120)


def refused(arena: Arena, what: Callable[[], None], kind: type[TwoPhaseError], *words: str) -> None:
    """`what` raises `kind` with all `words`, and nothing was written: no row, nothing prepared."""
    with pytest.raises(kind) as caught:
        what()
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert arena.count("facts") == 0
    assert arena.prepared("facts") == []


def test_an_unknown_job_option(arena: Arena, spark: SparkSession) -> None:
    arena.settings["options"]["checkpoint.tolerable_failure"] = 1
    refused(arena, lambda: run(arena, spark), ConfigError, "checkpoint.tolerable_failure", "did you mean")


@pytest.mark.proof
def test_an_option_of_the_wrong_type(arena: Arena, spark: SparkSession) -> None:
    arena.settings["options"]["checkpoint.timeout"] = "soon"
    refused(arena, lambda: run(arena, spark), ConfigError, "checkpoint.timeout", "'soon'", "10 s")


@pytest.mark.proof
def test_an_unknown_sink_option(arena: Arena, spark: SparkSession) -> None:
    refused(arena, lambda: run(arena, spark, tabel="orders"), ConfigError, "tabel", "table")


@pytest.mark.proof
def test_a_missing_table(arena: Arena, spark: SparkSession) -> None:
    refused(arena, lambda: run(arena, spark, table="nowhere"), ConfigError, "nowhere")


def test_a_missing_column(arena: Arena, spark: SparkSession) -> None:
    arena.sql("facts", "ALTER TABLE orders DROP COLUMN customer")
    refused(arena, lambda: run(arena, spark), ConfigError, "customer")


@pytest.mark.proof
def test_a_type_that_does_not_fit(arena: Arena, spark: SparkSession) -> None:
    arena.sql("facts", "ALTER TABLE orders MODIFY customer INT")
    refused(arena, lambda: run(arena, spark), ConfigError, "customer")


@pytest.mark.proof
def test_a_wrong_password(arena: Arena, spark: SparkSession) -> None:
    password = arena.scratch / "wrong"
    password.write_text("nonsense")
    password.chmod(0o600)
    refused(arena, lambda: run(arena, spark, password_file=str(password)), TwoPhaseError, "Access denied")


@pytest.mark.proof
def test_missing_rights(arena: Arena, spark: SparkSession, mysql: MySqlService) -> None:
    user = arena.databases["facts"][:20]
    arena.sql("facts", f"CREATE USER '{user}'@'%' IDENTIFIED WITH mysql_native_password BY 'secret-word'")
    arena.sql("facts", f"GRANT SELECT ON {arena.databases['facts']}.* TO '{user}'@'%'")
    password = arena.scratch / "reader"
    password.write_text("secret-word")
    password.chmod(0o600)
    url = f"mysql://{user}@{mysql.host}:{mysql.port}/{arena.databases['facts']}"
    refused(arena, lambda: run(arena, spark, url=url, password_file=str(password)), PreflightError, "GRANT")


@pytest.mark.proof
def test_a_missing_topic(arena: Arena, spark: SparkSession) -> None:
    arena.settings["topic"] = "no-such-topic"
    refused(arena, lambda: run(arena, spark), TwoPhaseError, "no-such-topic")


def test_malformed_json_names_the_record(arena: Arena, spark: SparkSession, kafka: KafkaService) -> None:
    workload.send(kafka.bootstrap_servers, arena.topic, b'{"id": 1, "customer": ', partition=1)
    refused(arena, lambda: run(arena, spark), TwoPhaseError, arena.topic, "offset 50")


@pytest.mark.proof
def test_a_malformed_record_stops_every_start_until_it_may_be_left_out(
    arena: Arena, spark: SparkSession, kafka: KafkaService
) -> None:
    workload.send(kafka.bootstrap_servers, arena.topic, b'{"id": 1, "customer": ', partition=1)
    for _ in range(2):
        refused(arena, lambda: run(arena, spark), BadRecordError, "offset 50", "json.on_error=drop")
    arena.settings["source"] = {"json.on_error": "drop"}
    run(arena, spark)
    rows = arena.sql("facts", "SELECT kafka_partition, kafka_offset FROM orders ORDER BY 1, 2")
    assert [tuple(row) for row in rows] == [(partition, offset) for partition in (0, 1) for offset in range(ROWS // 2)]


def test_a_duplicate_key_is_declined_and_named_never_skipped(
    arena: Arena, spark: SparkSession, kafka: KafkaService
) -> None:
    arena.sql("facts", "ALTER TABLE orders ADD PRIMARY KEY (id)")
    again = json.dumps({"id": 41, "customer": "again", "amount": 1}).encode()
    workload.send(kafka.bootstrap_servers, arena.topic, again, partition=1)
    refused(arena, lambda: run(arena, spark), RejectedRowsError, "Duplicate entry '41'")


@pytest.mark.proof
def test_a_value_that_does_not_fit_is_declined_and_named_never_clipped(arena: Arena, spark: SparkSession) -> None:
    arena.sql("facts", "ALTER TABLE orders MODIFY customer VARCHAR(5)")
    refused(arena, lambda: run(arena, spark), DeclinedError, "customer")


@pytest.mark.proof
def test_a_plain_dataframe_is_refused(arena: Arena, spark: SparkSession) -> None:
    refused(arena, lambda: run(arena, spark, spark.range(3)), ConfigError, "not streaming")


def test_no_secret_is_in_the_error_of_a_failed_login(arena: Arena, spark: SparkSession) -> None:
    password = arena.scratch / "canary"
    password.write_text("canary-7f3a")
    password.chmod(0o600)
    with pytest.raises(TwoPhaseError) as caught:
        run(arena, spark, password_file=str(password))
    assert "canary-7f3a" not in str(caught.value)
    assert "canary-7f3a" not in repr(caught.value.__cause__)
