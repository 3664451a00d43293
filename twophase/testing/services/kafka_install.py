"""Kafka's files in the cache: its jars, and a formatted empty data folder."""

from __future__ import annotations

import base64
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from twophase.spark.startup.cache import cached
from twophase.spark.startup.java import java
from twophase.spark.startup.progress import show_progress
from twophase.testing.services.maven import fetch_jars
from twophase.testing.services.pins import KAFKA_COORDINATES, KAFKA_VERSION, pins
from twophase.testing.services.ports import LOOPBACK
from twophase.testing.services.process import Launch, run_tool

HOME = f"kafka-{KAFKA_VERSION}"
_NODE_ID = 1
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": _NODE_ID,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # After a kill the controller waits this long for the dead incarnation of the broker before it
    # admits the new one; the default of 9 s would slow every kill test.
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 500,
    # Tests write records with old timestamps: retention would delete them.
    "log.retention.ms": -1,
    # The default of 128 MB is a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": 8 << 20,
}
"""`server.properties` of every test broker, except its listeners and data folder."""


def kafka_jars() -> Path:
    """Return the folder with Kafka's jars, fetched on first use."""
    return cached(HOME, _fetch)


def kafka_template() -> Path:
    """Return a formatted, empty data folder: formatting takes a separate JVM, copying does not."""
    return cached(f"{HOME}-data", _format)


def java_command(options: Sequence[str], main: str, *arguments: str) -> list[str]:
    """Return the command that runs one of Kafka's main classes."""
    return [java(), *options, "-cp", f"{kafka_jars()}/*", main, *arguments]


def write_identity(logs: Path) -> str:
    """Give a copied data folder its own cluster id: two brokers must not appear to be one cluster.

    Returns:
        The new cluster id.
    """
    cluster = random_id()
    identity = f"version=1\nnode.id={_NODE_ID}\ncluster.id={cluster}\ndirectory.id={random_id()}\n"
    (logs / "meta.properties").write_text(identity)
    return cluster


def write_properties(
    path: Path, *, client_port: int, controller_port: int, logs: Path, extra: Mapping[str, str]
) -> None:
    """Write a `server.properties`; `extra` overrides everything else."""
    client, controller = (
        f"PLAINTEXT://{LOOPBACK}:{client_port}",
        f"CONTROLLER://{LOOPBACK}:{controller_port}",
    )
    settings = {
        **SETTINGS,
        "listeners": f"{client},{controller}",
        "advertised.listeners": client,
        "controller.quorum.voters": f"{_NODE_ID}@{LOOPBACK}:{controller_port}",
        "log.dirs": logs,
        **extra,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _fetch(folder: Path) -> None:
    with show_progress(f"Fetching Kafka {KAFKA_VERSION}") as progress:
        fetch_jars(KAFKA_COORDINATES, folder, pins=pins("kafka"), progress=progress)


def _format(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="twophase-kafka-format-") as scratch:
        properties = Path(scratch) / "server.properties"
        write_properties(properties, client_port=9092, controller_port=9093, logs=folder, extra={})
        main = ("kafka.tools.StorageTool", "format", "-t", random_id(), "-c", str(properties))
        run_tool(Launch(java_command([], *main)), "Kafka's storage could not be formatted")


def random_id() -> str:
    """Return an id in Kafka's form: 16 bytes in URL-safe base 64, with no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
