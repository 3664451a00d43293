"""A server as a child process with its own data folder.

1. start: make a temporary folder, prepare the data, pick ports, start the process,
   ask until it answers.
2. kill, restart: any number of times, on the same data and ports.
3. stop: SIGTERM, SIGKILL if that takes too long, remove the folder; keep the log if
   the server failed.
"""

from __future__ import annotations

import logging
import shutil
import signal
from pathlib import Path

from typing_extensions import override

from twophase.errors import ServiceError
from twophase.testing.services.ports import free_ports
from twophase.testing.services.process import ServerProcess
from twophase.testing.services.program import Program
from twophase.testing.services.server import StartedServer

_LOG = logging.getLogger(__name__)
_PROBE_INTERVAL_S = 0.02
_STOP_TIMEOUT_S = 15.0
_BIND_TRIES = 4
_BIND_FAILURES = ("address already in use", "address in use")


class LocalServer(StartedServer[Program]):
    """Runs one program.

    Args:
        program: the kind of server.
        detached: it outlives this process.
        startup_timeout_s: how long a start may take until the first answer.
    """

    def __init__(self, program: Program, *, detached: bool, startup_timeout_s: float) -> None:
        super().__init__(program, startup_timeout_s)
        self._detached = detached
        self._process: ServerProcess | None = None

    @override
    def stop(self) -> None:
        if self._folder is None:
            return
        if self._process is not None:
            self._notice_crash(self._process.exit_code)
            self._process.terminate(_STOP_TIMEOUT_S)
        self._process = None
        shutil.rmtree(self._data if self._failed else self._folder, ignore_errors=True)
        self._folder = None

    @override
    def kill(self) -> None:
        self._running.kill()
        self._process = None

    @override
    def restart(self) -> None:
        if self._folder is None:
            raise self._program.not_started()
        if self._process is not None:
            self._process.terminate(_STOP_TIMEOUT_S)
            self._process = None
        self._run_until_ready()

    @override
    def suspend(self) -> None:
        self._running.suspend()

    @override
    def resume(self) -> None:
        self._running.resume()

    @property
    @override
    def pid(self) -> int:
        return self._running.pid

    @property
    def _data(self) -> Path:
        return self.log.with_name("data")

    @property
    def _running(self) -> ServerProcess:
        if self._process is None:
            raise self._program.not_started()
        return self._process

    @override
    def _start(self) -> None:
        """Start the server, on other ports if one was taken before the server binds it."""
        self._program.prepare(self._data)
        for attempt in range(1, _BIND_TRIES + 1):
            self._program.ports = free_ports(self._program.port_count)
            try:
                self._run_until_ready()
            except ServiceError:
                if attempt == _BIND_TRIES or not self._lost_a_port():
                    raise
                self.log.unlink()
                self._failed = False
            else:
                return

    def _run_until_ready(self) -> None:
        launch = self._program.launch(self._data)
        self._process = ServerProcess(
            launch, folder=self._data, log=self.log, detached=self._detached
        )
        self._wait_until_ready()
        self._program.started()

    @override
    def _exit_code(self) -> int | None:
        return self._running.wait(_PROBE_INTERVAL_S)

    def _lost_a_port(self) -> bool:
        if not self.log.exists():
            return False  # not even started
        printed = self.log.read_text(errors="replace").lower()
        return any(text in printed for text in _BIND_FAILURES)

    def _notice_crash(self, exit_code: int | None) -> None:
        """Keep the log of a server that ended by itself, not of one that a test killed."""
        if exit_code in (None, -signal.SIGKILL):
            return
        self._failed = True
        _LOG.warning(
            "%s ended by itself, exit code %s; its log: %s", self._program.name, exit_code, self.log
        )

    @override
    def _start_failure(self, what: str) -> ServiceError:
        self.kill()
        return super()._start_failure(what)
