"""The Delta Lake sink."""

from typing import TYPE_CHECKING

from twophase.exports import lazy_exports

if TYPE_CHECKING:
    from twophase.sinks.delta.sink import DeltaSink
    from twophase.sinks.delta.table_lock import JvmLockedError

__all__ = ["DeltaSink", "JvmLockedError"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "DeltaSink": "twophase.sinks.delta.sink",
        "JvmLockedError": "twophase.sinks.delta.table_lock",
    },
)
