"""The description of a kind of server that can be run in a container."""

from __future__ import annotations

import os
import socket
from abc import abstractmethod
from dataclasses import dataclass

from typing_extensions import override

from twophase.testing.services.program import ServerProgram

_CONNECT_TIMEOUT_S = 1.0
_CLOSED_WITHIN_S = 0.2


@dataclass(frozen=True)
class Address:
    """The address at which clients reach a container."""

    host: str
    port: int


class ContainerProgram(ServerProgram):
    """A server that can be run in a container: its image and its settings.

    Attributes:
        image_variable: the environment variable that names the image.
        public_image: the image if nothing names one.
        inside_port: the port for clients, inside the container.

    Args:
        image: overrides the environment.
    """

    image_variable: str
    public_image: str
    inside_port: int

    def __init__(self, image: str | None) -> None:
        self.image = image or os.environ.get(self.image_variable) or self.public_image
        self._address: Address | None = None

    @property
    @override
    def label(self) -> str:
        return f"{self.name} in a container of {self.image}"

    @property
    def address(self) -> Address:
        """The address for clients; set by the runner."""
        if self._address is None:
            raise self.not_started()
        return self._address

    @address.setter
    def address(self, address: Address) -> None:
        self._address = address

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return the container's environment variables."""

    def command(self) -> list[str]:
        """Return arguments for the image's entry point."""
        return []

    @override
    def listens(self) -> bool:
        """See `ServerProgram.listens`.

        The engine itself accepts connections from the first moment, and closes them at once as long
        as nothing listens inside.
        """
        try:
            connection = socket.create_connection(
                (self.address.host, self.address.port), _CONNECT_TIMEOUT_S
            )
        except OSError:
            return False
        with connection:
            connection.settimeout(_CLOSED_WITHIN_S)
            try:
                return connection.recv(1) != b""  # MySQL speaks first
            except TimeoutError:
                return True  # Kafka waits for its client
            except OSError:
                return False
