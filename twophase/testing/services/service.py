"""The common base of all services: start, stop, kill and restart."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from twophase.testing.services.server import Server


class Service:
    """A server for tests, demos and benchmarks. Not thread-safe.

    As a context manager it starts on entry and stops on exit.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, fetching it first if necessary; return when it answers a real request.

        Raises:
            ServiceError: it cannot be fetched or did not start; the message names its log.
        """
        self._server.start()

    def stop(self) -> None:
        """End the server and remove its data. Does nothing if it is not started."""
        self._server.stop()

    def kill(self) -> None:
        """End the server with SIGKILL; its data stays for `restart`."""
        self._server.kill()

    def restart(self) -> None:
        """Start the server again on the same port and data; shut it down first if it runs."""
        self._server.restart()

    def suspend(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open and nothing answers."""
        self._server.suspend()

    def resume(self) -> None:
        """Resume a frozen server (SIGCONT)."""
        self._server.resume()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._server.pid

    @property
    def log(self) -> Path:
        """The file with everything that the server has printed."""
        return self._server.log
