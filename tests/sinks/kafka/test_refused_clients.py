"""A client that the brokers refuse, or whose secret cannot be read: a task's attempt is declined, a
start is refused, and each says why and what to do.
"""

from __future__ import annotations

import re
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.certificate_authority import Authority
from harness.token_endpoint import CLIENT, TokenEndpoint, token_endpoint
from twophase.errors import DeclinedError, PreflightError
from twophase.ids import Subtask
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.ledger import KnownFence
from twophase.sinks.kafka.limits import TopicLimits
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.staged_writer import StagedWriter
from twophase.sinks.kafka.staging import StagingTopic
from twophase.sinks.kafka.writer import KafkaWriter, TaskWriter
from twophase.testing.harness import transaction_id

CANARY = "canary-d41d8c"
ROW = pa.RecordBatch.from_pydict({"id": [1]})


@pytest.fixture(params=["transaction", "staged"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def writer(protocol: str, **given: str) -> TaskWriter:
    """A writer of a task, with brokers that nobody reaches."""
    known: dict[str, Any] = {
        "kafka.bootstrap.servers": "nowhere.invalid:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "topic": "orders",
        "request.timeout": "1 s",
    }
    options = KafkaSinkOptions.parse(known | given)
    fence, whose = KnownFence(None, 0), (transaction_id(), Subtask(0, 0))
    if protocol == "transaction":
        return KafkaWriter(options, "kafka:x", {}, {}, fence, *whose)
    limits = {"orders": TopicLimits.of("orders", 1, {"max.message.bytes": "1000000"})}
    return StagedWriter(options, "kafka:x", StagingTopic("staging", "1", 1), limits, fence, *whose)


def write(writer: TaskWriter) -> None:
    """To the brokers, which the staged writer asks at the end."""
    writer.write(ROW)
    writer.flush()


def declined(writer: TaskWriter) -> DeclinedError:
    with pytest.raises(DeclinedError) as caught:
        write(writer)
    writer.abort()
    assert re.search(
        "rows of subtask 0.0 could not be written to topic '(orders|staging)'", caught.value.what
    )
    assert CANARY not in str(caught.value)
    return caught.value


def test_a_password_that_is_not_there(protocol: str, tmp_path: Path) -> None:
    path = tmp_path / "password"
    given = {
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "app",
        "kafka.sasl.password.file": str(path),
    }
    found = declined(writer(protocol, **given))
    assert f"'kafka.sasl.password.file' names '{path}', which cannot be read" in found.what
    assert "put the file on the driver and on every executor" in found.remedy
    assert "The job tries again" in found.remedy


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as running:
        yield running


@pytest.mark.parametrize(
    ("status", "says", "remedy"),
    [
        (401, "refuses a token for client 'etl': 401, invalid_client", "check the client's id"),
        (503, "gave no token: status 503", "check that the OAuth server runs"),
    ],
)
def test_a_token_that_is_not_given(
    protocol: str, tmp_path: Path, endpoint: TokenEndpoint, status: int, says: str, remedy: str
) -> None:
    (tmp_path / "secret").write_text(CANARY)
    endpoint.status = status
    endpoint.answer = {"error": "invalid_client", "error_description": CANARY}
    given = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.username": CLIENT,
        "kafka.sasl.password.file": str(tmp_path / "secret"),
        "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    found = declined(writer(protocol, **given))
    assert says in found.what
    assert remedy in found.remedy
    assert "The job tries again" in found.remedy


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[str]:
    """The address of a server with TLS whose authority is not that of `ca.pem`."""
    Authority.new("another").write(tmp_path / "ca.pem")
    Authority.new("its own").sign_server(tmp_path / "server.pem", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                context.wrap_socket(self.request, server_side=True).close()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_refusal_is_named_and_not_only_late(
    protocol: str, tmp_path: Path, untrusted: str
) -> None:
    """librdkafka says no more than that it has timed out."""
    given = {
        "kafka.bootstrap.servers": untrusted,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    found = declined(writer(protocol, **given))
    assert "imed out" in found.what
    assert "the brokers refuse the client: " in found.what
    assert "certificate verify failed" in found.what
    assert (
        "set `kafka.ssl.ca.location=FILE`, a PEM file with the authority of the brokers'"
        in found.remedy
    )


def refused_start(**given: str) -> PreflightError:
    options = KafkaSinkOptions.parse({"topic": "orders", "request.timeout": "1 s"} | given)
    with closing(Brokers(options)) as brokers, pytest.raises(PreflightError) as caught:
        brokers.cluster_id()
    assert CANARY not in str(caught.value)
    return caught.value


def test_a_start_without_a_token_says_what_to_check_of_the_oauth_server(
    tmp_path: Path, endpoint: TokenEndpoint
) -> None:
    (tmp_path / "secret").write_text(CANARY)
    endpoint.status, endpoint.answer = 401, {"error": "invalid_client"}
    found = refused_start(
        **{
            "kafka.bootstrap.servers": "nowhere.invalid:1",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.username": CLIENT,
            "kafka.sasl.password.file": str(tmp_path / "secret"),
            "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
        }
    )
    assert "401, invalid_client" in found.what
    assert found.remedy.startswith("check the client's id (kafka.sasl.username), its secret")


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [
        ("PLAINTEXT", "set kafka.security.protocol to SSL or SASL_SSL"),
        ("SSL", "set `kafka.ssl.ca.location=FILE`, a PEM file with the authority of the brokers'"),
    ],
)
def test_a_start_at_a_listener_of_another_kind_says_what_to_set(
    tmp_path: Path, untrusted: str, protocol: str, remedy: str
) -> None:
    given = {"kafka.bootstrap.servers": untrusted, "kafka.security.protocol": protocol}
    if protocol == "SSL":
        given["kafka.ssl.ca.location"] = str(tmp_path / "ca.pem")
    assert refused_start(**given).remedy.startswith(remedy)
