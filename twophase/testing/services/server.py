"""The life cycle of a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path


class Server(ABC):
    """The life cycle of a server, whoever runs it."""

    @abstractmethod
    def start(self) -> None:
        """Return when the server answers a real request."""

    @abstractmethod
    def stop(self) -> None:
        """End it and leave nothing behind."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL."""

    @abstractmethod
    def restart(self) -> None:
        """Start it again on the same port and data; end it first if it runs."""

    @abstractmethod
    def suspend(self) -> None:
        """SIGSTOP."""

    @abstractmethod
    def resume(self) -> None:
        """SIGCONT."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """Process id of the running server."""

    @property
    @abstractmethod
    def log(self) -> Path:
        """The file with everything that the server has printed."""
