"""The daemon that forks Spark's Python workers, with what they need imported beforehand.

Spark's own daemon imports nothing, so that each worker imports pyspark, pyarrow and the rest again: 0.9 s of a processor for each,
against 0.2. `spark.python.daemon.module = twophase.startup.daemon` puts this one in its place.

1. import     what workers of a job need; what is not installed is left to them
2. check      a fork copies one thread: with a second one about, Spark's own daemon takes over in this process
3. serve      by Spark's own code
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

MODULE = "twophase.startup.daemon"
PRELOAD_VARIABLE = "TWOPHASE_PRELOAD"
"""More modules to import beforehand, by commas; they must start no thread and open no connection."""

_SPARKS_OWN = "pyspark.daemon"
_MODULES = (
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.types",
    "pyspark.sql.pandas.serializers",
    "twophase.runtime.writer_task",
    "twophase.sources.kafka.source",
    "twophase.sources.kafka.reader",
)
# Arrow brings an allocator that cleans up in a thread of its own, although it is not the one that Arrow uses.
_WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


def preload(modules: Sequence[str]) -> None:
    """Import modules, each if it can be."""
    for name, value in _WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)
    for module in modules:
        with suppress(Exception):  # whoever needs it meets the error again, where it can be told
            import_module(module)


def threads() -> int:
    """How many threads this process has, those of native libraries included."""
    return len(os.listdir("/proc/self/task"))


def main() -> None:
    """Steps 1 to 3."""
    preload([*_MODULES, *filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(","))])
    if threads() > 1:
        os.execv(sys.executable, [sys.executable, "-m", _SPARKS_OWN, *sys.argv[1:]])  # noqa: S606
    import_module("twophase.workers").freeze_gc()
    import_module(_SPARKS_OWN).manager()


if __name__ == "__main__":
    main()
