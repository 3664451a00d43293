"""The Iceberg sink: appends to tables of Apache Iceberg, by pyiceberg."""

from typing import TYPE_CHECKING

from twophase.internals.exports import export

if TYPE_CHECKING:
    from twophase.sinks.iceberg.sink import IcebergSink as IcebergSink

export(
    __name__,
    {
        "twophase.sinks.iceberg.sink": ["IcebergSink"],
    },
    extra="iceberg",
)
