"""The description of a kind of server that can be run as a local process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from twophase.errors import ServiceError
from twophase.testing.services.process import Launch


class Program(ABC):
    """One server of one kind: its ports, its command, and when it is ready.

    Attributes:
        name: the usual spelling, for messages and folder names.
        ports: the loopback ports it listens on, the one for clients first; set by the runner.
    """

    name: str
    port_count = 1

    def __init__(self) -> None:
        self.ports: list[int] = []

    @property
    def port(self) -> int:
        """The port for clients."""
        return self.ports[0]

    @abstractmethod
    def prepare(self, data: Path) -> None:
        """Fill the data folder, which does not exist yet. Called once."""

    @abstractmethod
    def launch(self, data: Path) -> Launch:
        """Return the command that starts the server on its data folder. Called for every start."""

    @abstractmethod
    def probe(self) -> None:
        """Make one real request.

        Raises:
            Exception: any: the server is not ready yet.
        """

    def started(self) -> None:  # noqa: B027 - most have nothing to do
        """Called when a start has succeeded."""

    def not_started(self) -> ServiceError:
        """Return the error for a question that only a started server can answer."""
        return ServiceError(f"{self.name} is not started.", remedy="call start() or restart().")
