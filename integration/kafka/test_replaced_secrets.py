"""Passwords and PEM files are replaced under a running job: it waits for the right ones, and goes
on. Before its first micro-batch it does not start.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from harness.spark_features import needs
from integration.kafka.secure_broker import PASSWORD, USER, SecureKafka, secure_kafka
from integration.kafka.topics import Topics
from twophase.errors import ConfigError, PreflightError, SourceUnavailableError, TwoPhaseError
from twophase.sources.kafka import KafkaDataSource, engines
from twophase.sources.kafka.data_source import KafkaStreamReader
from twophase.spark_versions import LIMITED_READS, ReadAllAvailable

pytestmark = [pytest.mark.part("kafka"), pytest.mark.thin(4), needs(LIMITED_READS)]

SCHEMA = StructType([StructField("offset", LongType())])
ENGINES = ("librdkafka", "kafka-python")
KEY_PASSWORD = "canary-key-1"
PATIENCE_S = 120
LATE = (
    "did not answer: .*"
    "([Tt]imed out|Timeout during|Unable to bootstrap|I/O wait|Handshake failed: it has taken)"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure")) as started:
        yield started


@pytest.fixture
def topics(broker: SecureKafka) -> Iterator[Topics]:
    with Topics(broker.plain) as started:
        yield started


Secrets = dict[str, Path]


@pytest.fixture
def secrets(broker: SecureKafka, tmp_path: Path) -> Secrets:
    names = ("ca", "password", "certificate", "key", "key_password")
    made = {name: tmp_path / name for name in names}
    put_right(broker, made)
    return made


def put_right(broker: SecureKafka, secrets: Secrets) -> None:
    secrets["ca"].write_bytes(broker.ca.read_bytes())
    secrets["password"].write_text(PASSWORD)
    broker.authority.sign(secrets["certificate"], secrets["key"], KEY_PASSWORD)
    secrets["key_password"].write_text(KEY_PASSWORD)


def account(broker: SecureKafka, secrets: Secrets) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.sasl,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(secrets["ca"]),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER,
        "kafka.sasl.password.file": str(secrets["password"]),
    }


def certificate(broker: SecureKafka, secrets: Secrets) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.mutual,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(secrets["ca"]),
        "kafka.ssl.certificate.location": str(secrets["certificate"]),
        "kafka.ssl.key.location": str(secrets["key"]),
        "kafka.ssl.key.password.file": str(secrets["key_password"]),
    }


Way = Callable[[SecureKafka, Secrets], dict[str, str]]
Wrong = Callable[[SecureKafka, Secrets], object]
CASES: dict[str, tuple[Way, Wrong, str]] = {
    "another password": (account, lambda _, s: s["password"].write_text("wrong"), "password"),
    "no password file": (
        account,
        lambda _, s: s["password"].unlink(),
        r"password\.file.*/password",
    ),
    "another authority": (
        account,
        lambda b, s: s["ca"].write_bytes(b.other_ca.read_bytes()),
        r"ssl\.ca\.location",
    ),
    "no authority": (account, lambda _, s: s["ca"].unlink(), r"ssl\.ca\.location.*/ca"),
    "an empty authority": (account, lambda _, s: s["ca"].write_text(""), r"ssl\.ca\.location.*/ca"),
    "a certificate of another authority": (
        certificate,
        lambda b, s: b.other_authority.sign(s["certificate"], s["key"], KEY_PASSWORD),
        r"ssl\.certificate\.location",
    ),
    "no certificate": (
        certificate,
        lambda _, s: s["certificate"].unlink(),
        r"ssl\.certificate\.location.*/certificate",
    ),
    "no key": (certificate, lambda _, s: s["key"].unlink(), r"ssl\.key\.location.*/key"),
    "another password of the key": (
        certificate,
        lambda _, s: s["key_password"].write_text("wrong"),
        r"ssl\.key\.location.*/key",
    ),
    "no password of the key": (
        certificate,
        lambda _, s: s["key_password"].unlink(),
        r"ssl\.key\.password\.file.*/key_password",
    ),
}


def reader_of(given: dict[str, str], topic: str, engine: str) -> KafkaStreamReader:
    more = {
        "subscribe": topic,
        "columns": "offset",
        "request.timeout": "2 s",
        "read.timeout": "2 s",
        "fetch.engine": engine,
    }
    return KafkaDataSource(given | more).streamReader(SCHEMA)


class Job:
    """What Spark does with a source: one micro-batch after the other."""

    def __init__(self, reader: KafkaStreamReader) -> None:
        self.reader = reader
        self.at = reader.initialOffset()
        self.read: list[int] = []

    def plan(self) -> dict[str, Any]:
        return self.reader.latestOffset(self.at, ReadAllAvailable())

    def fetch(self, end: dict[str, Any]) -> None:
        found = [
            batch
            for item in self.reader.partitions(self.at, end)
            for batch in self.reader.read(item)
        ]
        self.read += [value for batch in found for value in batch.column("offset").to_pylist()]
        self.at = end

    def go_on(self) -> None:
        """Read what is there with the right secrets."""
        end = patiently(self.plan)
        patiently(lambda: self.fetch(end))


ResultT = TypeVar("ResultT")


def patiently(call: Callable[[], ResultT]) -> ResultT:
    """Return what comes of a call, as a job does: it tries again if the broker is only slow."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except SourceUnavailableError:
            assert time.monotonic() < deadline, "the right secrets are not taken"


def refusal(call: Callable[[], object], named: str) -> TwoPhaseError:
    """Return the error of a call with a wrong secret.

    A broker that is too slow to answer in `request.timeout` has refused nothing yet. Any other
    error has to name the secret the first time.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with pytest.raises((SourceUnavailableError, PreflightError, ConfigError)) as raised:
            call()
        assert PASSWORD not in str(raised.value)
        is_late = isinstance(raised.value, SourceUnavailableError) and re.search(
            LATE, str(raised.value)
        )
        if not is_late or time.monotonic() > deadline:
            assert re.search(named, str(raised.value))
            return raised.value


def lose_connections() -> None:
    """Close this process's connections under its open clients, as a broker that restarts does."""
    for cluster in engines._clusters.values():
        if cluster._admin is not None:
            manager = cluster._admin._manager
            for connection in list(manager._conns.values()):
                manager.run(connection.close)


@pytest.fixture
def fresh() -> Iterator[None]:
    engines.close_clusters()
    yield
    engines.close_clusters()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("case", "engine"),
    [(case, engine) for case in CASES for engine in ENGINES[: 2 if "another" in case else 1]],
)
def test_a_job_waits_for_the_right_secret(
    broker: SecureKafka, topics: Topics, secrets: Secrets, case: str, engine: str
) -> None:
    way, spoil, named = CASES[case]
    topic = topics.create()
    topics.send(topic, [b"x"] * 3)
    job = Job(reader_of(way(broker, secrets), topic, engine))
    job.go_on()
    topics.send(topic, [b"x"] * 2)
    end = patiently(job.plan)

    spoil(broker, secrets)
    lose_connections()
    for call in (job.plan, lambda: job.fetch(end)):
        refused = refusal(call, named)
        assert isinstance(refused, SourceUnavailableError)
        assert "The job tries again" in refused.remedy

    put_right(broker, secrets)
    job.go_on()
    assert job.read == [*range(5)]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("case", CASES)
def test_a_job_does_not_start_with_a_wrong_one(
    broker: SecureKafka, topics: Topics, secrets: Secrets, case: str
) -> None:
    way, spoil, named = CASES[case]
    job = Job(reader_of(way(broker, secrets), topics.create(), "auto"))
    spoil(broker, secrets)
    for frozen in (False, True):
        if frozen:
            patiently(job.reader.prepareForTriggerAvailableNow)
        refused = refusal(job.plan, named)
        assert isinstance(refused, PreflightError | ConfigError)
        assert refused.remedy


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_new_pair_with_another_password_is_used_by_the_next_connection(
    broker: SecureKafka, topics: Topics, secrets: Secrets, engine: str
) -> None:
    topic = topics.create()
    job = Job(reader_of(certificate(broker, secrets), topic, engine))
    for password in ("canary-key-2", "canary-key-3"):
        topics.send(topic, [b"x"])
        job.go_on()
        broker.authority.sign(secrets["certificate"], secrets["key"], password)
        secrets["key_password"].write_text(password)
        lose_connections()
    topics.send(topic, [b"x"])
    job.go_on()
    assert job.read == [*range(3)]


@pytest.mark.usefixtures("fresh")
def test_a_broker_that_asks_for_a_certificate_says_which_option_names_it(
    broker: SecureKafka, topics: Topics, secrets: Secrets
) -> None:
    given = certificate(broker, secrets)
    without = {key: given[key] for key in given if "certificate" not in key and ".key" not in key}
    topic = topics.create()
    refused = refusal(
        Job(reader_of(without, topic, "auto")).plan,
        re.escape('set .option("kafka.ssl.certificate.location", "FILE")'),
    )
    assert isinstance(refused, PreflightError)
    topics.send(topic, [b"x"])
    job = Job(reader_of(given, topic, "auto"))
    job.go_on()
    assert job.read == [0]
