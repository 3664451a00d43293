"""The Hive sink."""

from typing import TYPE_CHECKING

from twophase.exports import lazy_exports

if TYPE_CHECKING:
    from twophase.sinks.hive.sink import HiveSink

__all__ = ["HiveSink"]

__getattr__, __dir__ = lazy_exports(__name__, {"HiveSink": "twophase.sinks.hive.sink"})
