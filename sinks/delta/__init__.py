"""The Delta Lake sink."""

from typing import TYPE_CHECKING

from twophase.exports import export

if TYPE_CHECKING:
    from twophase.sinks.delta.sink import DeltaSink as DeltaSink
    from twophase.sinks.delta.table_lock import JvmLockedError as JvmLockedError

export(
    __name__,
    {
        "twophase.sinks.delta.sink": ["DeltaSink"],
        "twophase.sinks.delta.table_lock": ["JvmLockedError"],
    },
)
