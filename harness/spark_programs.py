"""Makes this process one of Spark's own programs, which die with the test run that started them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from twophase.spark.startup.java import spark_home

_PR_SET_PDEATHSIG = 1


def become(program: str, arguments: Sequence[str], conf: Mapping[str, str]) -> NoReturn:
    """Replace this process, which keeps its number, by a program of Spark.

    SIGKILL ends it as soon as its parent dies (prctl(2), PR_SET_PDEATHSIG): a JVM does not notice
    that by itself.

    Args:
        program: in Spark's folder `bin`.
        arguments: the program's.
        conf: Spark's settings.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    path = str(Path(spark_home(), "bin", program))
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    os.execv(path, [path, *settings, *arguments])
