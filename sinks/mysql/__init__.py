"""The MySQL and MariaDB sink."""

from typing import TYPE_CHECKING

from twophase.internals.exports import export

if TYPE_CHECKING:
    from twophase.sinks.mysql.sink import MySqlSink as MySqlSink

export(
    __name__,
    {
        "twophase.sinks.mysql.sink": ["MySqlSink"],
    },
    extra="mysql",
)
