"""A port where no broker listens: named at the start, in time; retried under a running job."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from harness.spark_features import needs
from tests.kafka_client.fake_peers import Peer, listening, says, says_nothing
from twophase.errors import PreflightError, SourceUnavailableError
from twophase.sources.kafka import KafkaDataSource, engines
from twophase.sources.kafka.data_source import KafkaStreamReader
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.spark_versions import LIMITED_READS, ReadAllAvailable

pytestmark = needs(LIMITED_READS)

SCHEMA = StructType([StructField("offset", LongType())])
TIMEOUT_S = 1
MOST_S = TIMEOUT_S + 12

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
MYSQL = b"\x4a\x00\x00\x00\x0a8.0.41\x00" + b"\x01" * 60
PEERS: dict[str, tuple[Peer, str]] = {
    "HTTP": (says(HTTP), "an HTTP server"),
    "MySQL": (says(MYSQL, first=True), "a MySQL server"),
    "SSH": (says(b"SSH-2.0-OpenSSH_9.2\r\n", first=True), "an SSH server"),
    "TLS": (says(b"\x15\x03\x03\x00\x02\x02\x46"), "speaks TLS"),
    "short frames": (says(b"\x00\x00\x00\x02hi" * 20), "does not speak Kafka"),
    "an empty frame": (says(b"\x00\x00\x00\x00" * 20), "does not speak Kafka"),
    "a frame of zeros": (says(b"\x00\x00\x00\x40" + b"\x00" * 64), "does not speak Kafka"),
}


MAY_PASS: dict[str, tuple[Peer, str]] = {
    "a proxy without its broker": (lambda _: None, "closes each connection without an answer"),
    "a broker that hangs": (says_nothing, "takes connections, and answers nothing"),
}


@pytest.fixture
def listen() -> Iterator[Callable[[Peer], int]]:
    with listening() as started:
        yield started
    engines.close_clusters()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("name", PEERS)
def test_what_is_no_broker_is_named(
    listen: Callable[[Peer], int], name: str, protocol: str
) -> None:
    peer, said = PEERS[name]
    port = listen(peer)
    reader = reader_of(port, protocol)
    since = time.monotonic()
    with pytest.raises(PreflightError) as raised:
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert time.monotonic() - since < MOST_S
    message = str(raised.value)
    assert f"No Kafka broker answers at 127.0.0.1:{port}: " in message
    if protocol == "SSL" and name == "TLS":
        assert "ssl.enabled.protocols" in raised.value.remedy
    else:
        assert said in message
        assert "kafka.security.protocol" in raised.value.remedy

    begun = SourceOffset.of("kafka", [PartitionOffset("orders", "a", 0, 5)]).to_values()
    with pytest.raises(SourceUnavailableError, match=f"127.0.0.1:{port}"):
        reader.latestOffset(begun, ReadAllAvailable())


def reader_of(port: int, protocol: str, host: str = "127.0.0.1") -> KafkaStreamReader:
    options = {
        "kafka.bootstrap.servers": f"{host}:{port}",
        "subscribe": "orders",
        "columns": "offset",
        "request.timeout": f"{TIMEOUT_S} s",
        "kafka.security.protocol": protocol,
    }
    return KafkaDataSource(options).streamReader(SCHEMA)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("name", MAY_PASS)
def test_what_says_nothing_may_be_a_broker_that_is_not_there_yet(
    listen: Callable[[Peer], int], name: str, protocol: str
) -> None:
    peer, said = MAY_PASS[name]
    port = listen(peer)
    reader = reader_of(port, protocol)
    with pytest.raises(SourceUnavailableError, match=f"127.0.0.1:{port} {said}"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


@pytest.mark.parametrize("host", ["127.0.0.1", "kafka..svc"], ids=["nobody", "no name of a host"])
def test_a_port_where_nobody_listens_is_tried_again(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    reader = reader_of(port, "PLAINTEXT", host)
    with pytest.raises(SourceUnavailableError, match="did not answer"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    engines.close_clusters()
