"""Starts driver processes, and kills them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from twophase.internals import failpoints
from twophase.testing.services.spark_start import spark_environment
from twophase.testing.sessions import is_gone, kill, session_of

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 180
SIGNAL_TIMEOUT_S = 30
# Only a kill ends a process that a failpoint holds.
_LONGER_THAN_ANY_TEST_MS = 3_600_000
_POLL_S = 0.05


@dataclass(frozen=True)
class Ended:
    """The end of a driver process."""

    code: int
    output: str
    points: list[str]

    @property
    def killed(self) -> bool:
        """True if SIGKILL ended it."""
        return self.code == -signal.SIGKILL


class DriverProcess:
    """One driver in a separate process, with everything that it starts.

    Args:
        settings: the settings of the driver's program, as JSON.
        scratch: a folder for its log.
        arm: failpoints, as in `TWOPHASE_FAILPOINTS`.
        conf: Spark's configuration.

    Attributes:
        module: the program of the driver.
        python: the interpreter that runs it.
    """

    module: str
    python = sys.executable

    def __init__(
        self,
        settings: dict[str, Any],
        scratch: Path,
        arm: str = "",
        conf: Mapping[str, str] | None = None,
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        run = f"run-{time.monotonic_ns()}"
        self._points = scratch / f"{run}.points"
        self.log = scratch / f"{run}.log"
        self._frozen: Frozen | None = None
        armed = {failpoints.LOG_VARIABLE: str(self._points), failpoints.VARIABLE: arm}
        # On a cluster the executors do not inherit the driver's environment.
        executors = {f"spark.executorEnv.{name}": value for name, value in armed.items()}
        own = self.environment(executors | dict(conf or {}))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self.python, "-m", self.module, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=own | armed | {"PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                start_new_session=True,
            )

    def environment(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the driver, whose Spark has this configuration."""
        return os.environ | spark_environment(conf)

    @property
    def pid(self) -> int:
        """The process id of the Python driver."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True if the Python driver lives."""
        return self._process.poll() is None

    def wait(self, timeout_s: float = TIMEOUT_S) -> Ended:
        """Wait for its end, and for that of all its descendants: a zombie would still write."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            output = self.log.read_text(errors="replace")[-6000:]
            self.kill()
            raise AssertionError(
                f"the driver did not end within {timeout_s} s:\n{output}"
            ) from None
        _, alive = psutil.wait_procs(self._family(), timeout=SIGNAL_TIMEOUT_S)
        assert not alive, f"{alive} outlived their driver"
        return self._ended(code)

    def kill(self) -> Ended:
        """SIGKILL the driver, its JVM and its workers at once, as a lost machine would."""
        kill(self._family())
        if self._frozen is not None:
            self._frozen.thaw()
        return self._ended(self._process.wait(SIGNAL_TIMEOUT_S))

    def wait_for(
        self, condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Wait until `condition` holds, which the end of the driver may bring about."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = self.running
            if condition():
                return
            if not running:
                raise AssertionError(
                    f"the driver ended while waiting for {what}:\n{self.log.read_text()[-6000:]}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"timed out waiting for {what}:\n{self.log.read_text()[-6000:]}"
                )
            time.sleep(_POLL_S)

    def kill_when_at(
        self,
        points: Sequence[str],
        timeout_s: float = TIMEOUT_S,
        before: Callable[[], None] = lambda: None,
    ) -> Ended:
        """Wait until one of its processes is held at each of the points (see `held_at`), call
        `before`, then kill all of it.
        """
        try:
            self.wait_for(
                lambda: {*self.points()} >= {*points},
                f"a job at each of {', '.join(points)}",
                timeout_s,
            )
            before()
        finally:
            ended = self.kill()
        return ended

    def points(self) -> list[str]:
        """Return the crash points that acted, in order."""
        return [point for point, _, _ in self._acted()]

    def wait_until_stopped(self, point: str, processes: int = 1) -> list[psutil.Process]:
        """Wait until a number of processes, the driver or its workers, have stopped
        themselves at a crash point.
        """

        def stopped() -> list[psutil.Process]:
            found = [
                psutil.Process(pid)
                for name, action, pid in self._acted()
                if (name, action) == (point, "stop")
            ]
            return [process for process in found if _is_stopped(process)]

        self.wait_for(
            lambda: len(stopped()) == processes, f"{processes} processes to be stopped at {point}"
        )
        return stopped()

    def freeze(self) -> None:
        """SIGSTOP the driver, its JVM and its workers at once, as a paused machine would be."""
        self._frozen = Frozen(self._family)

    def thaw(self) -> None:
        """Resume all of them, including those that have stopped themselves."""
        if self._frozen is not None:
            self._frozen.thaw()
        thaw(self._family())

    def _acted(self) -> list[tuple[str, str, int]]:
        """Return crash point, action and process id of each failpoint that acted."""
        if not self._points.exists():
            return []
        lines = [line.split() for line in self._points.read_text().splitlines()]
        return [(point, action, int(pid)) for point, action, pid in lines]

    def _ended(self, code: int) -> Ended:
        return Ended(code, self.log.read_text(errors="replace")[-8000:], self.points())

    def _family(self) -> list[psutil.Process]:
        return session_of(self.pid)


class Frozen:
    """A family of processes, all stopped, as on a paused machine.

    They resume with `thaw`, and when this process ends, however hard: a stopped driver
    could not notice that.

    Args:
        family: lists them; called until none runs that could start another.
    """

    def __init__(self, family: Callable[[], list[psutil.Process]]) -> None:
        deadline = time.monotonic() + SIGNAL_TIMEOUT_S
        while running := [
            process for process in family() if not _is_stopped(process) and not is_gone(process)
        ]:
            assert time.monotonic() < deadline, f"timed out waiting for {running} to be stopped"
            for process in running:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            time.sleep(_POLL_S)
        pids = " ".join(str(process.pid) for process in family())
        self._guard = subprocess.Popen(
            ["sh", "-c", f"read _; kill -CONT {pids}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Frozen:
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()

    def thaw(self) -> None:
        """SIGCONT all of them."""
        self._guard.communicate(timeout=SIGNAL_TIMEOUT_S)


def thaw(processes: Sequence[psutil.Process]) -> None:
    """SIGCONT all of them."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _is_stopped(process: psutil.Process) -> bool:
    return _status(process) == psutil.STATUS_STOPPED


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def held_at(points: Sequence[str], hit: int | str = 1) -> str:
    """Return failpoints that each hold one process for ever: the first to reach them, or the one of
    `hit`; "*" holds all.
    """
    return ",".join(f"{point}=delay:{_LONGER_THAN_ANY_TEST_MS}@{hit}" for point in points)
