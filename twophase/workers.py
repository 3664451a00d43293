"""What is done once in each of Spark's Python workers, which serve many tasks."""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def freeze_gc() -> None:
    """Take what is loaded by now out of the garbage collector's sight; call it at the end of a task.

    Spark's worker runs a full collection after every task. With pyarrow, pandas and pydantic loaded that is 50 ms of a
    processor, and a micro-batch has as many as it has readers and writers. What was frozen is still freed by its
    reference count; only cycles among what exists right now are kept, so this acts again only after new imports.
    """
    global _modules_seen
    if len(sys.modules) > _modules_seen:
        _modules_seen = len(sys.modules)
        gc.collect()
        gc.freeze()
