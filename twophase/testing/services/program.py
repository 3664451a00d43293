"""The description of a kind of server that can be started here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.services.ports import accepts_connections
from twophase.testing.services.process import Launch


class ServerProgram(ABC):
    """One server of one kind, and when it is ready.

    Attributes:
        name: the usual spelling, for messages and folder names.
    """

    name: str

    @property
    def label(self) -> str:
        """Its name in the error of a failed start."""
        return self.name

    @abstractmethod
    def listens(self) -> bool:
        """Return whether clients can connect; it may not be ready yet."""

    @abstractmethod
    def probe(self) -> None:
        """Make one real request.

        Raises:
            Exception: any: the server is not ready yet.
        """

    def not_started(self) -> ServiceError:
        """Return the error for a question that only a started server can answer."""
        return ServiceError(f"{self.name} is not started.", remedy="call start() or restart().")


class Program(ServerProgram):
    """A server that can be run as a local process: its ports and its command.

    Attributes:
        ports: the loopback ports it listens on, the one for clients first; set by the runner.
    """

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

    @override
    def listens(self) -> bool:
        return accepts_connections(self.port)

    def started(self) -> None:
        """Called when a start has succeeded."""
