"""The Hive sink."""

from typing import TYPE_CHECKING

from twophase.exports import export

if TYPE_CHECKING:
    from twophase.sinks.hive.sink import HiveSink as HiveSink

export(
    __name__,
    {
        "twophase.sinks.hive.sink": ["HiveSink"],
    },
)
