"""The daemon that forks Spark's workers: everything imported, nothing running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twophase.spark.startup.daemon import MODULE

PROGRAM = """
import os, sys
from importlib.metadata import entry_points
import twophase.spark.startup.daemon as daemon
daemon.preload([*daemon.modules(), "twophase.sinks.mysql.sink", "module.that.is.not.there"])
files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
print(daemon.threads(), any("socket" in file for file in files), "pyarrow.compute" in sys.modules, "pymysql" in sys.modules)
print([name for name in ("pandas", "numpy.random") if name in sys.modules])
sources = {entry.module for entry in entry_points(group="twophase.sources")}
print(len(sources) >= 3, sources - sys.modules.keys())
print([name for name in sys.argv[1:] if name not in sys.modules])
"""  # noqa: E501
NEEDED = ("twophase.spark.batch.writer_task", "twophase.spark.batch.chain")
# pyspark's daemon tells its port on standard output, and ends when its standard input does.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def test_what_workers_need_is_imported_and_nothing_that_a_fork_would_break() -> None:
    """With every installed source. Neither thread nor connection, not pandas, and no generator of
    numbers that every worker would begin alike.
    """
    found = subprocess.check_output(
        [sys.executable, "-c", PROGRAM, *NEEDED],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **ENVIRONMENT},
        text=True,
    )
    assert found == "1 False True True\n[]\nTrue set()\n[]\n"


def serve(**environment: str) -> tuple[str, int]:
    """The module that serves Spark, and the port that it tells Spark."""
    command = [sys.executable, "-m", MODULE, "pyspark.worker"]
    inherited = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**inherited, **ENVIRONMENT, **environment},
    ) as daemon:
        assert daemon.stdout is not None
        port = daemon.stdout.read(4)
        words = Path(f"/proc/{daemon.pid}/cmdline").read_text().split("\0")
        daemon.communicate()
    return words[words.index("-m") + 1], int.from_bytes(port, "big")


def test_it_serves_as_sparks_own_does() -> None:
    module, port = serve()
    assert module == MODULE
    assert 0 < port < 65536


def test_with_a_second_thread_about_sparks_own_daemon_takes_over() -> None:
    module, port = serve(TWOPHASE_PRELOAD="tests.spark.startup.starts_a_thread")
    assert module == "pyspark.daemon"
    assert 0 < port < 65536
