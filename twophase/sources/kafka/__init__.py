"""The Kafka source: the data source `twophase-kafka`, and the group offsets of the driver."""

from twophase.sources.kafka.group import GroupOffsets
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.source import KafkaDataSource
from twophase.sources.kafka.state import to_entries, to_line

__all__ = ["GroupOffsets", "KafkaDataSource", "KafkaOptions", "to_entries", "to_line"]
