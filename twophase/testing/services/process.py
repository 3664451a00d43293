"""One server process: starts, watches, suspends and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twophase.errors import ServiceError
from twophase.testing.services import watchdog
from twophase.testing.services.deadline import Deadline

_STOP_STATE_TIMEOUT_S = 5.0
_WATCHDOG_TIMEOUT_S = 5.0
_STATE_POLL_S = 0.002


@dataclass(frozen=True)
class Launch:
    """How to start a server once.

    Attributes:
        command: the program and its arguments.
        environment: variables added to those of this process.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def run_tool(launch: Launch, failure: str, text: str | None = None) -> None:
    """Run a program of a server to its end.

    Args:
        launch: the command to run.
        failure: what could not be done, if it fails.
        text: its standard input.

    Raises:
        ServiceError: it failed; the message ends with what it printed.
    """
    done = subprocess.run(
        launch.command, input=text, env={**os.environ, **launch.environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ServiceError(f"{failure}:\n{done.stdout}{done.stderr}")


class ServerProcess:
    """A running server.

    It runs in its own session, so that Ctrl-C in a terminal reaches only the test runner, which
    then stops its services in order.

    Args:
        launch: the command to run.
        folder: working folder; removed by the watchdog if this process dies hard.
        log: file that standard output and error are appended to.
        detached: the server outlives this process.
    """

    def __init__(self, launch: Launch, *, folder: Path, log: Path, detached: bool) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(launch.command),
                cwd=folder,
                env={**os.environ, **launch.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog = None if detached else _start_watchdog(self._process.pid, folder)

    @property
    def pid(self) -> int:
        """Process id of the server itself."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end of the process; None if it still runs after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def suspend(self) -> None:
        """SIGSTOP, and wait until the kernel has really stopped it."""
        self._process.send_signal(signal.SIGSTOP)
        deadline = Deadline(_STOP_STATE_TIMEOUT_S)
        while not self._is_stopped() and self.exit_code is None and not deadline.over:
            time.sleep(_STATE_POLL_S)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone and its ports are free."""
        self._process.kill()
        self._process.wait()
        self._end_watchdog()

    def terminate(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL after `timeout_s`."""
        if self.exit_code is None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)  # a suspended process would never see SIGTERM
            self.wait(timeout_s)
        self.kill()

    def _is_stopped(self) -> bool:
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return True  # no /proc here: nothing to ask
        return stat.rpartition(")")[2].split()[0] in "Tt"

    def _end_watchdog(self) -> None:
        if self._watchdog is None:
            return
        try:
            self._watchdog.wait(_WATCHDOG_TIMEOUT_S)  # it ends by itself with the server
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()
        self._watchdog = None


def _start_watchdog(server_pid: int, folder: Path) -> subprocess.Popen[bytes] | None:
    if not hasattr(os, "pidfd_open"):
        return None  # not Linux: a parent that dies hard leaves its servers behind
    script = str(Path(watchdog.__file__))
    arguments = [str(os.getpid()), str(server_pid), str(folder)]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", script, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
