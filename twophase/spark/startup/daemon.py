"""The daemon that forks Spark's Python workers, after importing the modules that they need.

Spark's own daemon imports nothing, so each worker imports pyspark, pyarrow and the rest again: 0.9
s of processor time each, instead of 0.2. `spark.python.daemon.module =
twophase.spark.startup.daemon` replaces it by this one.

1. import     the modules that a job's workers need, with those of all installed sources; those that
              fail are left to them
2. check      a fork copies only one thread: if there is a second one, Spark's own daemon takes
              over in this process
3. deafen     if SIGTERM is ignored here, it stays so: systemd sends it to every process of a unit,
              and a worker that died of it would fail the checkpoint that the driver ends cleanly
4. serve      by Spark's own code; it ends when Spark closes its standard input
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points

MODULE = "twophase.spark.startup.daemon"
PRELOAD_VARIABLE = "TWOPHASE_PRELOAD"
"""More modules to import, separated by commas; they must start no thread and open no connection."""

_SPARKS_OWN = "pyspark.daemon"
_MODULES = (
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.types",
    "pyspark.sql.pandas.serializers",
    "twophase.spark.batch.writer_task",
    "twophase.spark.batch.chain",
)
_SOURCES = "twophase.sources"
"""The group of the entry points of sources."""
# Arrow ships an allocator that cleans up in its own thread, even though Arrow does not use it.
_WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


def preload(modules: Sequence[str]) -> None:
    """Import modules, skipping those that fail."""
    for name, value in _WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)
    for module in modules:
        # the worker that needs it gets the error again, and can report it
        with suppress(Exception):
            import_module(module)


def threads() -> int:
    """Return how many threads this process has, including those of native libraries."""
    return len(os.listdir("/proc/self/task"))


def modules() -> list[str]:
    """Return what the workers of any job need: with what installed sources read, and the rest."""
    of_sources = {entry.module for entry in entry_points(group=_SOURCES)}
    added = filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(","))
    return [*_MODULES, *sorted(of_sources), *added]


def main() -> None:
    """Run steps 1 to 4."""
    preload(modules())
    if threads() > 1:
        os.execv(sys.executable, [sys.executable, "-m", _SPARKS_OWN, *sys.argv[1:]])  # noqa: S606
    import_module("twophase.internals.workers").freeze_gc()
    sparks = import_module(_SPARKS_OWN)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        sparks.SIGTERM = signal.SIGUSR1  # type: ignore[attr-defined]  # it handles this instead
    sparks.manager()


if __name__ == "__main__":
    main()
