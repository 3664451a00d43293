"""Kafka 4.1.1 as a service for tests, demos and benchmarks."""

from __future__ import annotations

import os
from collections.abc import Mapping

from twophase.testing.services.external_server import ExternalServer
from twophase.testing.services.kafka_program import (
    KafkaProgram,
    ask_for_cluster,
    class_archive_options,
)
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.server import Server
from twophase.testing.services.service import Service

BOOTSTRAP_VARIABLE = "TWOPHASE_KAFKA_BOOTSTRAP_SERVERS"


class KafkaService(Service):
    """A Kafka broker, or the user's own if TWOPHASE_KAFKA_BOOTSTRAP_SERVERS is set.

    Topics are never created automatically. Internal topics have one replica and one partition.

    Args:
        settings: more broker settings, `server.properties` keys; they override ours. Not applied
            to the user's own.
        heap_mb: the JVM's maximum heap.
        detached: the broker outlives this process.
        own: start a local broker whatever the environment says.
        startup_timeout_s: how long a start may take.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        detached: bool = False,
        own: bool = False,
        startup_timeout_s: float = 60.0,
    ) -> None:
        self._external = None if own else os.environ.get(BOOTSTRAP_VARIABLE)
        self._program = KafkaProgram(
            settings or {}, lambda: [f"-Xmx{heap_mb}m", *class_archive_options()]
        )
        server: Server
        if self._external:
            server = ExternalServer("Kafka", variable=BOOTSTRAP_VARIABLE, probe=self._probe)
        else:
            server = LocalServer(
                self._program, detached=detached, startup_timeout_s=startup_timeout_s
            )
        super().__init__(server)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as Kafka clients expect it."""
        return self._external or self._program.bootstrap_servers

    def _probe(self) -> None:
        ask_for_cluster(self.bootstrap_servers)
