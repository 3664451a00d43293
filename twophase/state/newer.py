"""Files of a newer version of twophase: whatever deletes files in the job's folder leaves them."""

from __future__ import annotations

from twophase.errors import CorruptRecordError
from twophase.protocol.record import HEAD_BYTES
from twophase.state import codec
from twophase.state.storage import Storage


def is_newer_file(storage: Storage, name: str) -> bool:
    """Return whether a newer version of twophase has written a file, or may have.

    Args:
        storage: the job's folder.
        name: the file. One that is gone or torn was written by nobody in particular; one that
            cannot be read now may be a newer version's.
    """
    try:
        return codec.is_newer(storage.head(name, HEAD_BYTES))
    except (FileNotFoundError, CorruptRecordError):
        return False
    except OSError:
        return True
