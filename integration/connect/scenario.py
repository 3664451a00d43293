"""Queries of the plugin form over Spark Connect: a server and a client, each a process of its own,
and each killed by the tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.nemesis import DriverProcess, Ended, held_at
from integration.plugin.scenario import TIMEOUT_S, PluginScenario
from twophase.testing.services.ports import LOOPBACK, accepts_connections, free_ports


class ConnectServer(DriverProcess):
    """A server of Spark Connect.

    Args:
        scratch: a folder for its log.
        arm: failpoints of its Python processes.
        master: Spark's.
        port: that it listens on; a free one by default.

    Attributes:
        remote: how clients name it.
        port: that it listens on.
    """

    module = "integration.connect.server"

    def __init__(self, scratch: Path, arm: str, master: str, port: int | None = None) -> None:
        self.port = free_ports(1)[0] if port is None else port
        super().__init__({"port": self.port, "master": master}, scratch, arm)
        self.remote = f"sc://{LOOPBACK}:{self.port}"

    def wait_until_it_listens(self) -> None:
        """Wait until clients can connect."""
        self.wait_for(lambda: accepts_connections(self.port), "clients to be accepted")


@contextmanager
def serving(
    scratch: Path, arm: str = "", master: str = "local[2]", port: int | None = None
) -> Iterator[ConnectServer]:
    """A server that clients can connect to, killed in the end."""
    server = ConnectServer(scratch, arm, master, port)
    try:
        server.wait_until_it_listens()
        yield server
    finally:
        server.kill()


def wait_until_held(server: ConnectServer, client: DriverProcess, points: Collection[str]) -> None:
    """Wait until a query of a client is held at each of the points."""
    server.wait_for(
        lambda: {*server.points()} >= {*points} or not client.running,
        f"a query at each of {', '.join(points)}",
        TIMEOUT_S,
    )
    assert client.running, client.kill().output


class ConnectScenario(PluginScenario):
    """Its queries, started by a client."""

    def client(self, server: ConnectServer, **settings: Any) -> DriverProcess:
        """Start a client of a server."""
        return self.driver(remote=server.remote, **settings)

    def finish(self, arm: str = "", **settings: Any) -> Ended:
        """A client ends cleanly on a new server, every query having written everything; the points
        are the server's.
        """
        master = settings.pop("master", "local[2]")

        def run() -> Ended:
            with serving(self.scratch, arm, master) as server:
                ended = self.client(server, **settings).wait(TIMEOUT_S)
                return replace(ended, points=server.points())

        return self.finished(run)

    def kill_at(self, points: Sequence[str], **settings: Any) -> None:
        """Wait until a query is held at each of the points, then kill the client and the server
        with everything it has started.
        """
        self.kill_when_held(held_at(points), points, **settings)

    def kill_when_held(self, arm: str, points: Sequence[str], **settings: Any) -> None:
        """The same with these failpoints."""
        with serving(self.scratch, arm, settings.pop("master", "local[2]")) as server:
            client = self.client(server, **settings)
            try:
                wait_until_held(server, client, points)
            finally:
                client.kill()
                ended = server.kill()
        assert {*ended.points} == {*points}
        self.hit.update(points)
