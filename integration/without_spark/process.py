"""Plain drivers as the tests see them: started from the zygote, killed, stopped and waited for
like any other driver.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

from harness.nemesis import ROOT, DriverProcess

_ANSWER_TIMEOUT_S = 60.0


class Zygote:
    """Starts drivers. For one thread.

    Args:
        modules: that it imports, beside those that all drivers need.
    """

    def __init__(self, *modules: str) -> None:
        self._requests, theirs = socket.socketpair()
        self._codes: dict[int, int] = {}
        self._unread = b""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "integration.without_spark.zygote"),
                *(str(theirs.fileno()), *modules),
            ],
            stdin=subprocess.PIPE,  # the leash: held here, read by all drivers and workers
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        theirs.close()

    def start(self, settings: dict[str, Any], log: Path, points: Path) -> int:
        """Start a driver; returns its process id."""
        request = {"settings": settings, "log": str(log), "points": str(points)}
        self._requests.sendall(json.dumps(request).encode() + b"\n")
        while True:
            answer = self._answer(_ANSWER_TIMEOUT_S)
            if answer is None:
                raise RuntimeError(f"the zygote gave no answer for {_ANSWER_TIMEOUT_S:g} s")
            if "started" in answer:
                self._codes.pop(answer["started"], None)
                return answer["started"]

    def code(self, pid: int, timeout_s: float) -> int | None:
        """The exit code of a driver; None if it does not end in that time."""
        deadline_s = time.monotonic() + timeout_s
        while pid not in self._codes:
            if self._answer(max(0.0, deadline_s - time.monotonic())) is None:
                return None
        return self._codes[pid]

    def close(self) -> None:
        """End it."""
        self._requests.close()
        self._process.wait(_ANSWER_TIMEOUT_S)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _answer(self, timeout_s: float) -> dict[str, int] | None:
        """The next answer; None if there is none in that time. What has ended is noted."""
        while b"\n" not in self._unread:
            self._requests.settimeout(timeout_s or 1e-6)
            try:
                data = self._requests.recv(65536)
            except (TimeoutError, BlockingIOError):
                return None
            if not data:
                raise RuntimeError("the zygote has ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        answer = cast("dict[str, int]", json.loads(line))
        if "ended" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer


class _Forked:
    """What a driver's process is to `DriverProcess`: the part of
    `subprocess.Popen` that it needs.
    """

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self.pid = pid
        self._zygote = zygote

    def poll(self) -> int | None:
        return self._zygote.code(self.pid, 0.0)

    def wait(self, timeout: float) -> int:
        code = self._zygote.code(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"driver {self.pid}", timeout)
        return code


class PlainDriver(DriverProcess):
    """One plain driver in a process of its own, with its workers.

    Args:
        zygote: forks it.
        settings: what `integration.without_spark.driver` takes.
        scratch: a folder for its log.
    """

    def __init__(self, zygote: Zygote, settings: dict[str, Any], scratch: Path) -> None:
        run = f"run-{time.monotonic_ns()}"
        self._points = scratch / f"{run}.points"
        self.log = scratch / f"{run}.log"
        self.log.touch()
        self._frozen = None
        forked = _Forked(zygote, zygote.start(settings, self.log, self._points))
        self._process = cast("subprocess.Popen[bytes]", forked)
