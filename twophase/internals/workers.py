"""Garbage collection in Spark's Python workers, each of which serves many tasks."""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def freeze_gc() -> None:
    """Exclude everything loaded so far from garbage collection; call it at the end of a task.

    Spark's worker runs a full collection after every task. With pyarrow, pandas and pydantic loaded
    that takes 50 ms of CPU time, and a micro-batch runs one for each of its readers and writers.
    Frozen objects are still freed by their reference counts; only cycles among the objects that
    exist now are kept, so this acts again only after new imports.
    """
    global _modules_seen
    if len(sys.modules) > _modules_seen:
        _modules_seen = len(sys.modules)
        gc.collect()
        gc.freeze()
