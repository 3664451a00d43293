"""Files of a newer version of twophase: whatever deletes files in the job's folder leaves them."""

from __future__ import annotations

from contextlib import suppress

from twophase.errors import CorruptRecordError
from twophase.state import codec
from twophase.state.storage import Storage


def is_newer_file(storage: Storage, name: str) -> bool:
    """Return whether a newer version of twophase has written a file.

    Args:
        storage: the job's folder.
        name: the file. One that is gone, torn or unreadable was written by nobody in particular.
    """
    with suppress(OSError, CorruptRecordError):
        return codec.is_newer(storage.read(name))
    return False
