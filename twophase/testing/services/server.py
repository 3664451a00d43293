"""The life cycle of a server, and a server that belongs to the user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.services.errors import ServiceNotOwnedError


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


class ExternalServer(Server):
    """A user's server, named by an environment variable: used, never stopped.

    Args:
        name: the kind of server.
        variable: the environment variable that names it.
        probe: makes one real request.
    """

    def __init__(self, name: str, *, variable: str, probe: Callable[[], None]) -> None:
        self._name = name
        self._variable = variable
        self._probe = probe

    @override
    def start(self) -> None:
        try:
            self._probe()
        except Exception as error:
            raise ServiceError(
                f"The {self._name} named by {self._variable} does not answer: {error}",
                remedy=f"start that server, or unset {self._variable} to have a local one started.",
            ) from error

    @override
    def stop(self) -> None:
        return None

    @override
    def kill(self) -> None:
        raise self._not_owned("kill()")

    @override
    def restart(self) -> None:
        raise self._not_owned("restart()")

    @override
    def suspend(self) -> None:
        raise self._not_owned("suspend()")

    @override
    def resume(self) -> None:
        raise self._not_owned("resume()")

    @property
    @override
    def pid(self) -> int:
        raise self._not_owned("pid")

    @property
    @override
    def log(self) -> Path:
        raise self._not_owned("log")

    def _not_owned(self, what: str) -> ServiceNotOwnedError:
        return ServiceNotOwnedError(
            f"{what} is not possible: {self._variable} names a {self._name} of yours, "
            "which was not started here.",
            remedy=f"unset {self._variable}, or pass own=True for a local server in spite of it.",
        )
