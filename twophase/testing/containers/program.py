"""The description of a kind of server that can be run in a container."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from twophase.errors import ServiceError
from twophase.testing.containers.reach import Address


class ContainerProgram(ABC):
    """One server of one kind: its image, its settings, and when it is ready.

    Attributes:
        name: the usual spelling, for messages and folder names.
        image_variable: the environment variable that names the image.
        public_image: the image if nothing names one.
        inside_port: the port for clients, inside the container.

    Args:
        image: overrides the environment.
    """

    name: str
    image_variable: str
    public_image: str
    inside_port: int

    def __init__(self, image: str | None) -> None:
        self.image = image or os.environ.get(self.image_variable) or self.public_image
        self._address: Address | None = None

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

    @abstractmethod
    def probe(self) -> None:
        """Make one real request.

        Raises:
            Exception: any: the server is not ready yet.
        """

    def not_started(self) -> ServiceError:
        """Return the error for a question that only a started server can answer."""
        return ServiceError(f"{self.name} is not started.", remedy="call start() or restart().")
