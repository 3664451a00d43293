"""The life cycle of a server, and what is the same for every server that we start ourselves."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, TypeVar

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.services.deadline import Deadline
from twophase.testing.services.program import ServerProgram

ProgramT = TypeVar("ProgramT", bound=ServerProgram)
_SHOWN_LOG_LINES = 15


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


class StartedServer(Server, Generic[ProgramT]):
    """A server that we start, with a folder of its own, and ask until it answers.

    Args:
        program: the kind of server.
        startup_timeout_s: how long a start may take until the first answer.
    """

    def __init__(self, program: ProgramT, startup_timeout_s: float) -> None:
        self._program = program
        self._startup_timeout_s = startup_timeout_s
        self._folder: Path | None = None
        self._failed = False

    @override
    def start(self) -> None:
        if self._folder is not None:
            raise ServiceError(f"{self._program.name} is started already.", remedy="use restart().")
        self._failed = False
        self._folder = Path(tempfile.mkdtemp(prefix=f"twophase-{self._program.name.lower()}-"))
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    @property
    @override
    def log(self) -> Path:
        if self._folder is None:
            raise self._program.not_started()
        return self._folder / "server.log"

    @abstractmethod
    def _start(self) -> None:
        """Start it and wait until it is ready; its folder is there, and empty."""

    @abstractmethod
    def _exit_code(self) -> int | None:
        """Wait a moment; return the exit code if it has ended."""

    def _wait_until_ready(self) -> None:
        deadline = Deadline(self._startup_timeout_s)
        problem: Exception | None = None
        while not deadline.over:
            exit_code = self._exit_code()
            if exit_code is not None:
                raise self._start_failure(
                    f"ended with exit code {exit_code} while starting"
                ) from problem
            problem = self._problem()
            if problem is None:
                return
        raise self._start_failure(f"gave no answer within {deadline.timeout_s:g} s") from problem

    def _problem(self) -> Exception | None:
        """Return why the server is not ready yet; None if it is."""
        if not self._program.listens():
            return ConnectionRefusedError(f"{self._program.name} accepts no connections")
        try:
            self._program.probe()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown if it lasts
            return error
        return None

    def _start_failure(self, what: str) -> ServiceError:
        self._failed = True
        log = self.log
        shown = "\n".join(f"    {line}" for line in end_of(log))
        return ServiceError(
            f"{self._program.label} {what}. The end of its log:\n{shown}\n",
            remedy=f"read the whole log: {log}",
        )


def end_of(log: Path) -> list[str]:
    """Return the last lines of a server's log, for an error."""
    return log.read_text(errors="replace").splitlines()[-_SHOWN_LOG_LINES:]
