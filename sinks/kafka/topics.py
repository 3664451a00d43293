"""Topics of twophase: found, or created with the settings that they need."""

from __future__ import annotations

from collections.abc import Mapping

from twophase.errors import ConfigError
from twophase.kafka_client.partitions import Topic
from twophase.sinks.kafka.brokers import DEFAULT_REPLICAS, Brokers
from twophase.sinks.kafka.options import KafkaSinkOptions


def target_topic(brokers: Brokers, options: KafkaSinkOptions) -> Topic:
    """Return the topic that the rows go to.

    Raises:
        ConfigError: it does not exist.
    """
    found = brokers.topic(options.topic)
    if found is None:
        raise ConfigError(
            f"There is no {options.where}.", remedy="create it, or correct the option topic."
        )
    return found


def find_topic(
    brokers: Brokers,
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    replicas: int = DEFAULT_REPLICAS,
    *,
    create: bool,
) -> Topic | None:
    """Return a topic; None if it does not exist and is not to be created.

    Args:
        brokers: an open client.
        name: its name.
        partitions: how many it gets.
        settings: that it gets.
        replicas: how many it gets.
        create: whether to create it.
    """
    found = brokers.topic(name)
    if found is None and create:
        brokers.create(name, partitions, settings, replicas)
        found = brokers.topic(name)
    return found
