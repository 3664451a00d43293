"""The Kafka source over TLS with a password, or with tokens: right is read, anything else is
refused, and no secret is anywhere.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from harness.spark_features import needs
from harness.tcp_proxy import Switchboard
from harness.token_endpoint import CLIENT, TokenEndpoint, token_endpoint
from integration.cluster.cluster import Cluster
from integration.kafka.secure_broker import PASSWORD, USER, SecureKafka, secure_kafka
from integration.kafka.topics import Topics
from twophase.errors import PreflightError, SourceUnavailableError, TwoPhaseError
from twophase.kafka_client import oauth_tokens
from twophase.sources.kafka import GroupOffsets, KafkaDataSource
from twophase.sources.kafka.data_source import KafkaStreamReader
from twophase.sources.kafka.options import KafkaOptions
from twophase.spark_versions import LIMITED_READS, ReadAllAvailable
from twophase.testing.services.spark_start import spark_environment

pytestmark = [pytest.mark.part("kafka"), needs(LIMITED_READS)]

SCHEMA = StructType([StructField("offset", LongType())])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure")) as started:
        yield started


@pytest.fixture(scope="module")
def topic(broker: SecureKafka) -> str:
    with Topics(broker.plain) as topics:
        made = topics.create()
        topics.send(made, [b"x"] * 10)
    return made


@pytest.fixture
def options(broker: SecureKafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("SOURCE_PASSWORD", PASSWORD)
    return {
        "kafka.bootstrap.servers": broker.sasl,
        "subscribe": topic,
        "columns": "offset",
        "group.id": "secure",
        "request.timeout": "5 s",
        "read.timeout": "4 s",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(broker.ca),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER,
        "kafka.sasl.password.env": "SOURCE_PASSWORD",
    }


def reader_of(options: dict[str, str]) -> KafkaStreamReader:
    return KafkaDataSource(options).streamReader(SCHEMA)


def ends(reader: KafkaStreamReader) -> tuple[dict[str, Any], dict[str, Any]]:
    start = reader.initialOffset()
    return start, reader.latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize("engine", ["librdkafka", "kafka-python"])
def test_with_the_right_authority_and_password_all_of_it_works(
    options: dict[str, str], engine: str
) -> None:
    reader = reader_of(options | {"fetch.engine": engine})
    start, end = ends(reader)
    read = [batch for item in reader.partitions(start, end) for batch in reader.read(item)]
    assert [value for batch in read for value in batch.column("offset").to_pylist()] == list(
        range(10)
    )
    assert PASSWORD not in str(end)


def test_group_offsets_travel_the_same_way(options: dict[str, str]) -> None:
    _, end = ends(reader_of(options))
    group = GroupOffsets(options)
    group.commit(json.dumps(end))
    assert list(group.committed(json.dumps(end)).values()) == [10]
    group.close()


def test_a_password_file_works_too(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    del options["kafka.sasl.password.env"]
    ends(reader_of(options | {"kafka.sasl.password.file": str(tmp_path / "password")}))


def refused(options: dict[str, str]) -> str:
    with pytest.raises(TwoPhaseError) as caught:
        ends(reader_of(options))
    assert isinstance(caught.value, PreflightError | SourceUnavailableError)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_a_wrong_password_is_refused(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "wrong")
    patient = options | {"request.timeout": "30 s"}
    assert "check user, password and the ACLs" in refused(patient)


def test_another_authority_is_refused(options: dict[str, str], broker: SecureKafka) -> None:
    said = refused(options | {"kafka.ssl.ca.location": str(broker.other_ca)})
    assert "certificate verify failed" in said
    assert '.option("kafka.ssl.ca.location", "FILE"), a PEM file with the authority of the' in said
    ends(reader_of(options | {"kafka.ssl.ca.location": str(broker.ca)}))


@pytest.mark.parametrize("sasl", [True, False], ids=["with a password", "without"])
def test_brokers_that_can_be_reached_again_are_read_by_the_next_start(
    options: dict[str, str], broker: SecureKafka, sasl: bool
) -> None:
    if not sasl:
        options = {key: options[key] for key in options if not key.startswith("kafka.")}
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    host, _, port = (broker.sasl if sasl else broker.plain).partition(":")
    with Switchboard(host, nobody) as proxy:
        options |= {
            "kafka.bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "request.timeout": "2 s",
        }
        said = refused(options)
        assert "check that the brokers run and can be reached" in said
        assert ("and user and password: a broker may close" in said) is sasl
        proxy.lead_to(int(port))
        ends(reader_of(options | {"request.timeout": "30 s"}))


@pytest.mark.proof
def test_a_certificate_of_another_name_is_refused(
    options: dict[str, str], broker: SecureKafka
) -> None:
    assert "certificate is not valid for" in refused(
        options | {"kafka.bootstrap.servers": broker.wrong_name}
    )


def test_a_listener_without_tls_is_named(options: dict[str, str], broker: SecureKafka) -> None:
    said = refused(options | {"kafka.bootstrap.servers": broker.plain})
    assert f"No Kafka broker answers at {broker.plain}: what answers there speaks Kafka" in said
    assert "set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT" in said
    plain = {key: options[key] for key in options if not key.startswith("kafka.")}
    plain |= {"kafka.bootstrap.servers": broker.plain, "kafka.security.protocol": "PLAINTEXT"}
    ends(reader_of(plain))


def test_a_listener_with_tls_is_named(options: dict[str, str], broker: SecureKafka) -> None:
    plain = {key: value for key, value in options.items() if ".ssl." not in key}
    said = refused(plain | {"kafka.security.protocol": "SASL_PLAINTEXT"})
    assert f"No Kafka broker answers at {broker.sasl}: what answers there speaks TLS" in said
    assert "set kafka.security.protocol to SSL or SASL_SSL" in said
    ends(reader_of(options | {"kafka.security.protocol": "SASL_SSL"}))


@pytest.mark.parametrize("wrong", ["authority", "name", "password", "plain"])
def test_librdkafka_refuses_the_same(
    options: dict[str, str], broker: SecureKafka, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer, KafkaException

    from twophase.sources.kafka.fetch_librdkafka import settings
    from twophase.sources.kafka.options import KafkaOptions

    changed = {
        "authority": {"kafka.ssl.ca.location": str(broker.other_ca)},
        "name": {"kafka.bootstrap.servers": broker.wrong_name},
        "password": {"request.timeout": "2 s"},
        "plain": {"kafka.bootstrap.servers": broker.plain},
    }[wrong]
    if wrong == "password":
        monkeypatch.setenv("SOURCE_PASSWORD", "wrong")
    consumer = Consumer(settings(KafkaOptions.parse(options | changed), [], 1))
    try:
        with pytest.raises(KafkaException):
            consumer.list_topics(timeout=2)
    finally:
        consumer.close()


# -- executors of their own ------------------------------------------------------------------------

_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import twophase

options, folder = json.loads(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.getOrCreate()
twophase.register(spark)
rows = spark.readStream.format("twophase-kafka").options(**options).load()
query = rows.writeStream.format("parquet").trigger(availableNow=True)
query.option("checkpointLocation", f"{folder}/job").start(f"{folder}/rows").awaitTermination()
print(spark.read.parquet(f"{folder}/rows").count())
"""


@pytest.mark.proof
def test_executors_on_other_machines_get_the_secret_that_is_set_for_them(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_PASSWORD")
    cluster = Cluster(tmp_path, workers=1)

    def run(conf: dict[str, str]) -> str:
        settings = {"spark.master": cluster.master, "spark.ui.enabled": "false"}
        environment = spark_environment(cluster.conf | settings | conf)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, json.dumps(options), str(tmp_path)],
            env=os.environ | environment | {"SOURCE_PASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout or done.stderr

    try:
        said = run({})
        assert "the environment variable 'SOURCE_PASSWORD', which is not set" in said
        assert "with spark.executorEnv, for the executors." in said
        assert run({"spark.executorEnv.SOURCE_PASSWORD": PASSWORD}) == "10\n"
    finally:
        cluster.stop()


# -- tokens ----------------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as running:
        yield running


@pytest.fixture
def bearer(options: dict[str, str], broker: SecureKafka, endpoint: TokenEndpoint) -> dict[str, str]:
    changed = {
        "kafka.bootstrap.servers": broker.tokens,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.username": CLIENT,
        "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    return {key: value for key, value in options.items() if ".ssl." not in key} | changed


ENGINES = ["librdkafka", "kafka-python"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_reads_on_while_its_tokens_expire(
    bearer: dict[str, str], broker: SecureKafka, endpoint: TokenEndpoint, engine: str
) -> None:
    endpoint.life_s = 2
    with Topics(broker.plain) as topics:
        topic, sent, read = topics.create(), 0, list[int]()
        reader = reader_of(bearer | {"subscribe": topic, "fetch.engine": engine})
        at = reader.initialOffset()
        while endpoint.granted < 4:
            topics.send(topic, [b"x"])
            sent += 1
            end = reader.latestOffset(at, ReadAllAvailable())
            found = [batch for item in reader.partitions(at, end) for batch in reader.read(item)]
            read += [value for batch in found for value in batch.column("offset").to_pylist()]
            at = end
    assert read == list(range(sent))
    reader.stop()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_token_that_a_broker_refuses_is_replaced(
    bearer: dict[str, str], endpoint: TokenEndpoint, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bearer["fetch.engine"] = engine
    endpoint.refused = 1
    reader = reader_of(bearer)
    start, end = ends(reader)
    assert endpoint.granted == 2, "the driver's"
    monkeypatch.setattr(oauth_tokens, "_AGAIN_S", 0)

    def read() -> list[int]:
        assert oauth_tokens.token_refused(KafkaOptions.parse(bearer))
        found = [batch for item in reader.partitions(start, end) for batch in reader.read(item)]
        return [value for batch in found for value in batch.column("offset").to_pylist()]

    endpoint.refused = 1
    assert read() == [*range(10)]
    assert endpoint.granted == 4, "an executor's"
    endpoint.refused = 99
    with pytest.raises((PreflightError, SourceUnavailableError)) as raised:
        read()
    assert PASSWORD not in str(raised.value)
    reader.stop()
