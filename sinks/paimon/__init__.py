"""The Paimon sink: appends to tables of Apache Paimon, by pypaimon."""

from typing import TYPE_CHECKING

from twophase.internals.exports import export

if TYPE_CHECKING:
    from twophase.sinks.paimon.sink import PaimonSink as PaimonSink

export(
    __name__,
    {
        "twophase.sinks.paimon.sink": ["PaimonSink"],
    },
    extra="paimon",
)
