"""Starts driver processes, and kills them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from twophase import failpoints

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 180


@dataclass(frozen=True)
class Ended:
    """How a driver process ended."""

    code: int
    output: str
    points: list[str]

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL


class DriverProcess:
    """One driver in a process of its own, with everything it starts.

    Args:
        settings: what `integration.driver` takes.
        scratch: a folder for its log.
        arm: failpoints, as in `TWOPHASE_FAILPOINTS`.
    """

    def __init__(self, settings: dict[str, Any], scratch: Path, arm: str = "") -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        run = f"run-{time.monotonic_ns()}"
        self._points = scratch / f"{run}.points"
        self.log = scratch / f"{run}.log"
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            failpoints.LOG_VARIABLE: str(self._points),
            failpoints.VARIABLE: arm,
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "integration.driver", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of the Python driver."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the Python driver lives."""
        return self._process.poll() is None

    def wait(self, timeout_s: float = TIMEOUT_S) -> Ended:
        """Wait for its end, and for that of all it has started: a zombie would still write."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            output = self.log.read_text(errors="replace")[-6000:]
            self.kill()
            raise AssertionError(f"the driver did not end within {timeout_s} s:\n{output}") from None
        _, alive = psutil.wait_procs(self._family(), timeout=30)
        assert not alive, f"{alive} outlived their driver"
        return self._ended(code)

    def kill(self) -> Ended:
        """SIGKILL the driver, its JVM and its workers at once, as a lost machine would."""
        family = self._family()
        for process in family:
            process.kill()
        psutil.wait_procs(family, timeout=30)
        return self._ended(self._process.wait(30))

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until `condition` holds while the driver lives."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._process.poll() is not None:
                raise AssertionError(f"the driver ended while waiting for {what}:\n{self.log.read_text()[-6000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"timed out waiting for {what}:\n{self.log.read_text()[-6000:]}")
            time.sleep(0.05)

    def points(self) -> list[str]:
        """The crash points that acted, in order."""
        if not self._points.exists():
            return []
        return [line.split()[0] for line in self._points.read_text().splitlines()]

    def _ended(self, code: int) -> Ended:
        return Ended(code, self.log.read_text(errors="replace")[-8000:], self.points())

    def _family(self) -> list[psutil.Process]:
        """All processes of the driver's session: the JVM and the workers stay in it when their parent is gone."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def run(settings: dict[str, Any], scratch: Path, arm: str = "") -> Ended:
    """Run a driver to its end."""
    return DriverProcess(settings, scratch, arm).wait()
