"""An authority that is replaced under a read with tokens: librdkafka keeps the one before."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.certificate_authority import FolderAuthority
from harness.token_endpoint import CLIENT, token_endpoint
from tests.kafka_client.fake_peers import listening
from tests.sources.kafka.memory_cluster import Log, MemoryCluster
from twophase.kafka_client.access import RefusedError
from twophase.sources.kafka.block import Wanted
from twophase.sources.kafka.fetch_librdkafka import fetch
from twophase.sources.kafka.guard import ReadGuard
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions

ITEM = OffsetRange("kafka", "t", "id-1", 0, 10, 20, 0)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_the_read_gets_a_client_with_the_new_one(stack: ExitStack, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    right, ca = FolderAuthority(theirs), FolderAuthority(ours).file
    context = right.server("127.0.0.1")

    def serve(connection: socket.socket) -> None:
        ca.write_bytes(right.file.read_bytes())
        context.wrap_socket(connection, server_side=True).close()

    (tmp_path / "password").write_text("secret")
    given = {
        "kafka.bootstrap.servers": f"127.0.0.1:{stack.enter_context(listening())(serve)}",
        "subscribe": "t",
        "read.timeout": "20 s",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(ca),
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.username": CLIENT,
        "kafka.sasl.password.file": str(tmp_path / "password"),
        "kafka.sasl.oauthbearer.token.endpoint.url": stack.enter_context(token_endpoint()).url,
    }
    options = KafkaOptions.parse(given)
    cluster = MemoryCluster({"t": ("id-1", [Log(0, 25)])})
    guard = ReadGuard(options, cluster, ITEM)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="PEM files were replaced"):
        next(fetch(options, ITEM, Wanted(), guard))
