"""The Python that Spark's workers run: it must have the packages that the driver has.

pyspark runs `PYSPARK_PYTHON`, else the `python3` on the PATH, which is another one if a virtual
environment is used without being activated: `/path/to/venv/bin/python app.py`. The query would fail
in its first task, with a page of Java around "No module named 'twophase'".
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from twophase.errors import PreflightError
from twophase.spark.startup.quick_start import PYTHON_VARIABLE as _VARIABLE
from twophase.spark.startup.quick_start import find_worker_python
from twophase.spark.startup.worker_python import is_this_python, worker_python

_TIMEOUT_S = 60
_PROBE = "import sys, twophase, pyspark; print(sys.version_info[:2] == (%d, %d))"


def use_this_python(context: SparkContext) -> None:
    """Make sure that the workers of a session run a suitable Python.

    In local mode (`local[...]`) they run this same Python, unless the user has named one. We cannot
    know what is installed on the machines of a cluster, so Spark's own choice stays there.

    Raises:
        PreflightError: in local mode, the Python that the user has named has no twophase, or
            is another version.
    """
    if not str(context.master).startswith("local"):
        return
    named = os.environ.get(_VARIABLE)
    if named is None:
        context.pythonExec = find_worker_python() or sys.executable
    elif not is_this_python(named) and not _can(named):
        raise PreflightError(
            f"Spark's workers run {named}, which cannot import twophase or is not Python "
            f"{sys.version_info.major}.{sys.version_info.minor}, the driver's version.",
            remedy=f"start the driver with {_VARIABLE}={sys.executable}",
        )


def restore_worker_python(context: SparkContext) -> None:
    """Recreate the workers' program if its cache folder was deleted under a running job."""
    if not Path(context.pythonExec).is_absolute() or Path(context.pythonExec).exists():
        return
    with suppress(OSError):  # the next task says what is missing
        worker_python()


@cache
def _can(program: str) -> bool:
    command: list[Any] = [program, "-c", _PROBE % sys.version_info[:2]]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "True"
