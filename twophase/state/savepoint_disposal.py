"""Disposes of a savepoint, or of what an interrupted one has left: the manifest goes first.

1. `_savepoint`, `_finished`   from here on it is no savepoint
2. `scratch/...`, `data/...`
3. `_begun`, the folder        until then what is left can be recognised, and disposed of again
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from twophase.errors import ConfigError
from twophase.failpoints import failpoint
from twophase.state.newer import is_newer_file
from twophase.state.savepoint import BEGUN, DATA, FINISHED, MANIFEST, SCRATCH
from twophase.state.storage import Storage

_OWN = {BEGUN, MANIFEST, FINISHED, DATA, SCRATCH}
_PART = re.compile(r"\d{7}")


def dispose(storage: Storage, where: str) -> None:
    """Delete a savepoint. After an interruption, call it again.

    Args:
        storage: its folder.
        where: its path, for errors.

    Raises:
        ConfigError: it is none, or other files lie in it; nothing was deleted.
        OSError: something could not be deleted; what is left is no savepoint.
    """
    found = storage.names("")
    parts = storage.names(DATA) if DATA in found else []
    foreign = [name for name in found if name not in _OWN]
    foreign += [f"{DATA}/{name}" for name in parts if not _PART.fullmatch(name)]
    if not {BEGUN, MANIFEST} & {*found}:
        raise ConfigError(
            f"{where} is no savepoint. Nothing was deleted.", remedy="check the path."
        )
    if foreign:
        raise ConfigError(
            f"The folder of the savepoint {where} has other files in it, such as {foreign[0]}. "
            "Nothing was deleted.",
            remedy="move them elsewhere, then try again.",
        )
    if is_newer_file(storage, MANIFEST):
        raise ConfigError(
            f"The savepoint {where} was made by a newer version of twophase. Nothing was deleted.",
            remedy="dispose of it with that version.",
        )
    for name in (MANIFEST, FINISHED):
        storage.delete(name)
        failpoint("S09")
    if SCRATCH in found:
        shutil.rmtree(Path(where) / SCRATCH)  # Spark's, so it is a local one
    for name in parts:
        storage.delete(f"{DATA}/{name}")
        failpoint("S10")
    for name in (DATA, BEGUN, ""):
        storage.delete(name)
