"""What Spark's state stores have on disk, below `state/` of a query's folder.

    state/<operator>/<partition>/[<store>/]<version>.delta       what a micro-batch changed, in the default store
                                            <version>.snapshot   all of it, written later, from time to time
                                            <version>.changelog  the same two of RocksDB
                                            <version>.zip

Micro-batch n makes version n + 1, in its tasks. Spark 4.2 finds a version by its number, or, with
`spark.sql.streaming.stateStore.checkpointFormatVersion` 2, by an id that only its commit log has: `<version>_<id>.zip`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_FILE = re.compile(r"\d+(_.+)?\.(delta|snapshot|changelog|zip)")
_MADE_BY_A_TASK = ("delta", "changelog", "zip")


def have_version(state: Path, version: int) -> bool:
    """Whether every state store has what made a version, under a name that has no id. False if there is no store.

    Args:
        state: the folder `state/`.
        version: as in the files' names.
    """
    stores = list(_stores(state))
    return bool(stores) and all(
        any(_is_there(store / f"{version}.{kind}") for kind in _MADE_BY_A_TASK) for store in stores
    )


def _stores(state: Path) -> Iterator[Path]:
    """The folders of those that have made some version."""
    for folder, _, names in os.walk(state):
        if any(_FILE.fullmatch(name) for name in names):
            yield Path(folder)


def _is_there(file: Path) -> bool:
    """A power cut can empty what Spark wrote last."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False
