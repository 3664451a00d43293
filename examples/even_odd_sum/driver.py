"""One driver: runs a process, and ends everything that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from twophase.testing.services.spark_start import spark_environment
from twophase.testing.sessions import kill, session_of

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 300
_END_TIMEOUT_S = 30
_LOG_LINES = 15


class DriverFailedError(Exception):
    """A driver ended in a way that was not planned."""


def run_driver(module: str, log: Path, environment: Mapping[str, str]) -> bool:
    """Run a driver to its end.

    Args:
        module: the program to run.
        log: the file for its output.
        environment: more variables.

    Returns:
        True if it has ended by itself, False if SIGKILL has ended it.

    Raises:
        DriverFailedError: it has failed, or has not ended in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "twophase.testing.parent_death", module],
            env={**os.environ, **spark_environment(), **environment},
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = process.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        # processes of a killed driver must no longer write when the next one starts
        kill(session_of(process.pid))
        process.wait(_END_TIMEOUT_S)
    if code not in (0, -signal.SIGKILL):
        ended = f"did not end within {_TIMEOUT_S} s" if code is None else f"ended with {code}"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        raise DriverFailedError(f"{module} {ended}:\n{tail}")
    return code == 0
