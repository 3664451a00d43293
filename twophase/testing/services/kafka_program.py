"""Kafka as one KRaft process: broker and controller in one JVM."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kafka import KafkaAdminClient
from typing_extensions import override

from twophase.errors import ServiceError
from twophase.spark.startup.cache import cache_root, cached
from twophase.spark.startup.java import java
from twophase.spark.startup.progress import show_progress
from twophase.testing.services.kafka_install import (
    HOME,
    java_command,
    kafka_template,
    write_identity,
    write_properties,
)
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.ports import LOOPBACK
from twophase.testing.services.process import Launch
from twophase.testing.services.program import Program

_PROBE_TIMEOUT_MS = 5_000
_RECORD_TIMEOUT_S = 60.0
_ARCHIVE = "classes.jsa"
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",  # two cores, small heap: a concurrent collector costs more than it saves
    "-XX:+ExitOnOutOfMemoryError",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)


class KafkaProgram(Program):
    """A Kafka broker.

    Args:
        settings: more `server.properties` keys; they override ours.
        jvm_options: called at every start for more options for the JVM.
    """

    name = "Kafka"
    port_count = 2

    def __init__(
        self, settings: Mapping[str, str], jvm_options: Callable[[], Sequence[str]]
    ) -> None:
        super().__init__()
        self._settings = settings
        self._jvm_options = jvm_options
        self._cluster_id = ""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the listener for clients."""
        if not self.ports:
            raise self.not_started()
        return f"{LOOPBACK}:{self.port}"

    @override
    def prepare(self, data: Path) -> None:
        shutil.copytree(kafka_template(), data / "logs")
        self._cluster_id = write_identity(data / "logs")

    @override
    def launch(self, data: Path) -> Launch:
        client_port, controller_port = self.ports
        properties = data / "server.properties"
        write_properties(
            properties,
            client_port=client_port,
            controller_port=controller_port,
            logs=data / "logs",
            extra=self._settings,
        )
        return Launch(
            java_command([*_JVM_OPTIONS, *self._jvm_options()], "kafka.Kafka", str(properties))
        )

    @override
    def probe(self) -> None:
        answered = ask_for_cluster(self.bootstrap_servers)
        if answered != self._cluster_id:
            # Another broker took the port before us, and answers in our place while our JVM
            # is still starting.
            raise ServiceError(
                f"Port {self.port} belongs to another Kafka, with the cluster id {answered}."
            )


def ask_for_cluster(bootstrap_servers: str) -> str:
    """Return the id of a cluster that is in service: its metadata lists a broker."""
    admin = KafkaAdminClient(
        bootstrap_servers=bootstrap_servers,
        request_timeout_ms=_PROBE_TIMEOUT_MS,
        bootstrap_timeout_ms=_PROBE_TIMEOUT_MS,
    )
    try:
        cluster = admin.describe_cluster()
    finally:
        admin.close()
    if not cluster["brokers"]:
        raise ServiceError("Kafka has no broker in service yet.")
    return str(cluster["cluster_id"])


def fetch_kafka() -> None:
    """Fetch everything that a start needs into the cache."""
    kafka_template()


def record_kafka_classes() -> None:
    """Record the archive that lets Kafka start in half the time: it pays after a few starts."""
    kafka_template()
    cached(_classes(), _record_classes)


def class_archive_options() -> list[str]:
    """Return JVM options that load Kafka's classes from an archive; none before it is recorded.

    There is one for each JVM; a JVM that cannot record or read one starts without.
    """
    archive = cache_root() / _classes() / _ARCHIVE
    # -Xlog: a mismatch only costs time, and must not look like an error in the log.
    options = [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return options if archive.is_file() else []


def _classes() -> str:
    """Return the name of the archive's folder in the cache."""
    runtime = Path(java()).resolve()
    identity = f"{runtime}:{runtime.stat().st_mtime_ns}"
    return f"{HOME}-classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _record_classes(folder: Path) -> None:
    with show_progress("Recording Kafka's classes for faster starts"):
        recorder = KafkaProgram({}, lambda: [f"-XX:ArchiveClassesAtExit={folder / _ARCHIVE}"])
        server = LocalServer(recorder, detached=False, startup_timeout_s=_RECORD_TIMEOUT_S)
        server.start()
        server.stop()  # the JVM writes the archive as it ends
