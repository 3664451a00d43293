"""Topics: those that rows go to, and those of twophase, which are created with the settings that
they need.

A piece belongs to the sink's `topic`. Its handle has the ids of the other topics that its rows went
to, so that none of them is taken for another that has its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twophase.contract.committable import Committable
from twophase.contract.outcome import Lost
from twophase.errors import ConfigError
from twophase.kafka_client.partitions import Topic
from twophase.sinks.kafka.brokers import DEFAULT_REPLICAS, Brokers
from twophase.sinks.kafka.options import KafkaSinkOptions

_TOPICS = "topics"
TopicIds = Mapping[str, str]
"""The id of this creation of each topic, by name."""


def target_topics(brokers: Brokers, options: KafkaSinkOptions) -> Mapping[str, Topic]:
    """Return the topics that rows may go to, by name, the sink's `topic` first.

    Raises:
        ConfigError: one does not exist.
    """
    found = brokers.topics(*options.topics)
    for name in options.topics:
        if name not in found:
            option = "topic" if name == options.topic else "other_topics"
            raise ConfigError(
                f"There is no topic {name!r} at {options.bootstrap_servers}.",
                remedy=f"create it, or correct the option {option}.",
            )
    return {name: found[name] for name in options.topics}


def handle_of(ids: TopicIds) -> dict[str, Any]:
    """Return what the handle of a piece says of the other topics that its rows went to."""
    return {_TOPICS: dict(ids)} if ids else {}


def lost_with_topics(brokers: Brokers, piece: Committable) -> Lost | None:
    """Return what is lost of a piece that nobody has committed, if one of those topics is gone, or
    is another one now.
    """
    written: TopicIds = piece.handle.get(_TOPICS, {})
    if not written:
        return None
    now = dict(zip(written, brokers.ids(*written), strict=True))
    gone = [f"{name!r} ({id})" for name, id in sorted(written.items()) if now[name] != id]
    if not gone:
        return None
    return Lost(f"its rows went to topics that were deleted since: {', '.join(gone)}")


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
