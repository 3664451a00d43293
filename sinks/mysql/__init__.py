"""The MySQL and MariaDB sink."""

from typing import TYPE_CHECKING

from twophase.exports import lazy_exports

if TYPE_CHECKING:
    from twophase.sinks.mysql.sink import MySqlSink

__all__ = ["MySqlSink"]

__getattr__, __dir__ = lazy_exports(__name__, {"MySqlSink": "twophase.sinks.mysql.sink"})
