"""A server that belongs to the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.services.errors import ServiceNotOwnedError
from twophase.testing.services.server import Server


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
