"""Kafka in a container."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.containers.program import ContainerProgram
from twophase.testing.containers.server import ContainerServer
from twophase.testing.services.kafka_install import SETTINGS, random_id
from twophase.testing.services.kafka_program import ask_for_cluster
from twophase.testing.services.pins import KAFKA_VERSION
from twophase.testing.services.service import Service

IMAGE_VARIABLE = "TWOPHASE_KAFKA_IMAGE"
_CLIENTS, _BROKERS, _CONTROLLER = 9092, 9093, 9094


class _KafkaProgram(ContainerProgram):
    """A broker whose image takes `server.properties` from variables, as apache/kafka does."""

    name = "Kafka"
    image_variable = IMAGE_VARIABLE
    public_image = f"apache/kafka:{KAFKA_VERSION}"
    inside_port = _CLIENTS

    def __init__(self, image: str | None, settings: Mapping[str, str], heap_mb: int) -> None:
        super().__init__(image)
        self._settings = settings
        self._heap_mb = heap_mb
        self._cluster_id = random_id()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the listener for clients."""
        return f"{self.address.host}:{self.address.port}"

    @override
    def environment(self) -> dict[str, str]:
        properties = {
            **SETTINGS,
            "listeners": (
                f"PLAINTEXT://:{_CLIENTS},BROKER://:{_BROKERS},CONTROLLER://:{_CONTROLLER}"
            ),
            # The clients' port does not lead to the broker from inside its container.
            "advertised.listeners": (
                f"PLAINTEXT://{self.bootstrap_servers},BROKER://localhost:{_BROKERS}"
            ),
            "inter.broker.listener.name": "BROKER",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "controller.quorum.voters": f"{SETTINGS['node.id']}@localhost:{_CONTROLLER}",
            "log.dirs": "/var/lib/kafka/data",
            **self._settings,
        }
        variables = {variable_of(key): str(value) for key, value in properties.items()}
        return variables | {
            "CLUSTER_ID": self._cluster_id,
            "KAFKA_HEAP_OPTS": f"-Xmx{self._heap_mb}m",
        }

    @override
    def probe(self) -> None:
        answered = ask_for_cluster(self.bootstrap_servers)
        if answered != self._cluster_id:
            raise ServiceError(
                f"{self.bootstrap_servers} belongs to another Kafka, "
                f"with the cluster id {answered}."
            )


def variable_of(key: str) -> str:
    """Return the variable from which apache/kafka's image reads a key of `server.properties`."""
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


class KafkaContainer(Service):
    """A Kafka broker in a container: the image that TWOPHASE_KAFKA_IMAGE names, else apache/kafka.

    Topics are never created automatically. Internal topics have one replica and one partition.

    Args:
        image: overrides the environment and the public image.
        settings: more broker settings, `server.properties` keys; they override ours.
        heap_mb: the JVM's maximum heap.
        startup_timeout_s: how long a start may take once the image is present.
    """

    def __init__(
        self,
        *,
        image: str | None = None,
        settings: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        startup_timeout_s: float = 120.0,
    ) -> None:
        self._program = _KafkaProgram(image, settings or {}, heap_mb)
        super().__init__(ContainerServer(self._program, startup_timeout_s=startup_timeout_s))

    @property
    def image(self) -> str:
        """The name of the image."""
        return self._program.image

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as Kafka clients expect it."""
        return self._program.bootstrap_servers
