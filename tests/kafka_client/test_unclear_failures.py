"""Why a request of the driver fails is named, also by a slow machine or a broker that hangs."""

from __future__ import annotations

import itertools
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.net.selector import NetworkSelector

from harness.certificate_authority import FolderAuthority
from tests.kafka_client.fake_peers import Peer, listening, refuses_logins, says_nothing
from twophase.errors import SourceUnavailableError
from twophase.kafka_client import connection
from twophase.kafka_client.access import AccessError
from twophase.sources.kafka.cluster import Cluster
from twophase.sources.kafka.options import KafkaOptions

Listen = Callable[[Peer], int]


@pytest.fixture
def listen() -> Iterator[Listen]:
    with listening() as started:
        yield started


def cluster_at(port: int, **more: str) -> Cluster:
    given = {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}",
        "subscribe": "orders",
        "request.timeout": "1 s",
    }
    names = {name.replace("__", "."): value for name, value in more.items()}
    return Cluster(KafkaOptions.parse(given | names))


def with_password(port: int, tmp_path: Path) -> Cluster:
    (tmp_path / "password").write_text("wrong")
    return cluster_at(
        port,
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__username="app",
        kafka__sasl__password__file=str(tmp_path / "password"),
    )


def test_a_refusal_that_comes_with_the_end_of_its_connection_is_read(
    listen: Listen, tmp_path: Path
) -> None:
    with pytest.raises(AccessError, match="Invalid username or password") as raised:
        with_password(listen(refuses_logins), tmp_path).topics(["orders"])
    assert "check user, password and the ACLs" in raised.value.remedy


def first(peer: Peer, then: Peer) -> Peer:
    """Return a peer that is another one from its second connection on."""
    numbers = itertools.count()

    def serve(connection: socket.socket) -> None:
        (then if next(numbers) else peer)(connection)

    return serve


def with_tls(context: ssl.SSLContext) -> Peer:
    def serve(connection: socket.socket) -> None:
        context.wrap_socket(connection, server_side=True).close()

    return serve


def test_a_certificate_that_was_refused_is_named_whatever_comes_after_it(
    listen: Listen, tmp_path: Path
) -> None:
    """A broker that hangs says nothing about the certificate that it showed before."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    port = listen(first(with_tls(FolderAuthority(theirs).server("127.0.0.1")), says_nothing))
    cluster = cluster_at(
        port,
        kafka__security__protocol="SSL",
        kafka__ssl__ca__location=str(FolderAuthority(ours).file),
    )
    with pytest.raises(AccessError, match="certificate verify failed") as raised:
        cluster.topics(["orders"])
    assert "kafka.ssl.ca.location" in raised.value.remedy


def asks_for_a_certificate(context: ssl.SSLContext, ca: Path) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca)


def asks_with_tls_1_2(context: ssl.SSLContext, ca: Path) -> None:
    asks_for_a_certificate(context, ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def has_other_ciphers(context: ssl.SSLContext, _: Path) -> None:
    """Its certificate has an elliptic curve; these ciphers are for RSA."""
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-GCM-SHA256")


def has_old_versions(context: ssl.SSLContext, _: Path) -> None:
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1


PAIR, VERSIONS = "kafka.ssl.certificate.location", "ssl.enabled.protocols"


@pytest.mark.parametrize(
    ("made", "named", "mended"),
    [
        (asks_for_a_certificate, {PAIR}, PAIR),
        (asks_with_tls_1_2, {PAIR, VERSIONS}, PAIR),
        (has_other_ciphers, {PAIR, VERSIONS}, VERSIONS),
        (has_old_versions, {VERSIONS}, VERSIONS),
    ],
)
def test_why_a_broker_ends_the_handshake_is_told_apart_as_far_as_it_says(
    listen: Listen,
    tmp_path: Path,
    made: Callable[[ssl.SSLContext, Path], None],
    named: set[str],
    mended: str,
) -> None:
    authority = FolderAuthority(tmp_path)
    context = authority.server("127.0.0.1")
    made(context, authority.file)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            says_nothing(secured)

    port = listen(serve)
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": str(authority.file)}
    with pytest.raises(AccessError) as raised:
        cluster_at(port, **given).topics(["orders"])
    assert {name for name in (PAIR, VERSIONS) if name in raised.value.remedy} == named

    if mended == PAIR:
        pair = str(authority.server_file("app"))
        given |= {PAIR: pair, "kafka.ssl.key.location": pair}
    else:
        context = authority.server("127.0.0.1")
    with pytest.raises(SourceUnavailableError, match="takes connections, and answers nothing"):
        cluster_at(port, **given).topics(["orders"])  # the handshake succeeds


def test_a_tls_handshake_that_takes_too_long_is_no_refusal(listen: Listen) -> None:
    """A broker with TLS answers an alert to what is none: that is no other program."""

    def serve(connection: socket.socket) -> None:
        if connection.recv(5)[:1] != b"\x16":
            connection.sendall(b"\x15\x03\x03\x00\x02\x02\x50")
            return
        says_nothing(connection)

    cluster = cluster_at(listen(serve), kafka__security__protocol="SSL")
    with pytest.raises(SourceUnavailableError, match="takes connections, and answers nothing"):
        cluster.topics(["orders"])


def test_a_tls_handshake_that_is_broken_off_is_no_refusal(listen: Listen) -> None:
    def serve(connection: socket.socket) -> None:
        if connection.recv(5)[:1] != b"\x16":
            connection.sendall(b"\x15\x03\x03\x00\x02\x02\x50")

    cluster = cluster_at(listen(serve), kafka__security__protocol="SSL")
    with pytest.raises(SourceUnavailableError, match="ends the TLS handshake"):
        cluster.topics(["orders"])


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_broker_that_hangs_leaves_time_for_the_others(
    listen: Listen, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LEAST_ATTEMPT_S", 0.1)
    since, tried = time.monotonic(), list[float]()
    limit_s = 5  # a busy machine may keep the client from its loop for most of a second

    def serve(connection: socket.socket) -> None:
        tried.append(time.monotonic() - since)
        says_nothing(connection)

    why = {"PLAINTEXT": "Request timed out", "SSL": r"Handshake failed: .* more than 1\.\d+ s"}
    cluster = cluster_at(
        listen(serve), request__timeout=f"{limit_s} s", kafka__security__protocol=protocol
    )
    with pytest.raises(SourceUnavailableError, match=f"did not answer: .*{why[protocol]}"):
        cluster.topics(["orders"])
    assert len([at for at in tried if at < limit_s]) >= 2


def test_a_client_that_another_thread_closes_is_opened_again(listen: Listen) -> None:
    class Admin:
        """As far as kafka-python's is concerned here."""

        def __init__(self) -> None:
            self.net = NetworkSelector()
            self.close = self.net.close

    opened = list[Admin]()

    def closed_meanwhile(admin: Any) -> str:
        if len(opened) == 1:
            cluster.close()
        return str(admin.net.run(lambda: "an answer"))

    class Own(Cluster):
        def _open(self) -> Any:
            if self._admin is None:
                self._admin = Admin()
                opened.append(self._admin)
            return self._admin

    cluster = Own(cluster_at(1)._options)
    assert cluster.call("a question", closed_meanwhile) == "an answer"
    assert len(opened) == 2
    with pytest.raises(RuntimeError, match="another"):
        cluster.call("a question", lambda _: (_ for _ in ()).throw(RuntimeError("another")))
    cluster.close()
