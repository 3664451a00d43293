"""The Kafka source: the data source `twophase-kafka`, and its part in checkpoints."""

from twophase.sources.kafka.data_source import KafkaDataSource
from twophase.sources.kafka.group import GroupOffsets
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.source import KafkaSource

__all__ = ["GroupOffsets", "KafkaDataSource", "KafkaOptions", "KafkaSource"]
