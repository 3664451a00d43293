"""Ends process sessions as a lost machine does: a driver with its JVM and its workers.

The JVM and the workers of a killed driver stay in its session, and must no longer write when the
next driver starts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

import psutil

_TIMEOUT_S = 30
_POLL_S = 0.01


def session_of(leader: int) -> list[psutil.Process]:
    """Return all live processes of the session that `leader` began, itself living or not."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if (
                os.getsid(pid) == leader
                and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


def kill(processes: Sequence[psutil.Process]) -> None:
    """Send SIGKILL to each process and wait until all have ended.

    Raises:
        TimeoutError: a process has not ended within 30 s.
    """
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + _TIMEOUT_S
    while alive := [process for process in processes if not is_gone(process)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{alive} outlived SIGKILL")
        time.sleep(_POLL_S)


def is_gone(process: psutil.Process) -> bool:
    """Return whether a process has ended."""
    try:
        return process.status() in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
