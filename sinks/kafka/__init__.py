"""The Kafka sink: records in transactions that wait for the decision."""

from typing import TYPE_CHECKING

from twophase.internals.exports import export

if TYPE_CHECKING:
    from twophase.sinks.kafka.sink import KafkaSink as KafkaSink

export(
    __name__,
    {
        "twophase.sinks.kafka.sink": ["KafkaSink"],
    },
    extra="kafka",
)
