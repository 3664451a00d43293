"""Topics: those that rows go to, and those of twophase, which are created with the settings that
they need.

A piece belongs to the sink's `topic`. Where its rows wait in the topics themselves, its handle has
the ids of the other ones that they went to, so that none is taken for another that has its name.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from twophase.contract.committable import Committable
from twophase.contract.outcome import Lost
from twophase.errors import ConfigError, TargetUnreachableError, TwoPhaseError
from twophase.kafka_client.partitions import Topic
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.options import KafkaSinkOptions

INSYNC = "min.insync.replicas"
_INSYNC_AT_LEAST = 2
_TOPICS = "topics"
TopicIds = Mapping[str, str]
"""The id of this creation of each topic, by name."""


def target_topics(brokers: Brokers, options: KafkaSinkOptions) -> Mapping[str, Topic]:
    """Return the topics that rows may go to, by name, the sink's `topic` first.

    Raises:
        ConfigError: one does not exist, at the start.
        TargetUnreachableError: one does not exist any more.
    """
    found = brokers.topics(*options.topics)
    for name in options.topics:
        if name not in found:
            raise _missing(name, brokers, options)
    return {name: found[name] for name in options.topics}


def _missing(name: str, brokers: Brokers, options: KafkaSinkOptions) -> TwoPhaseError:
    option = "topic" if name == options.topic else "other_topics"
    if not brokers.begun:
        return ConfigError(
            f"There is no topic {name!r} at {options.bootstrap_servers}.",
            remedy=f"create it, or correct the option {option}.",
        )
    return TargetUnreachableError(
        f"Topic {name!r} at {options.bootstrap_servers} does not exist any more.",
        remedy=f"create it again, or correct the option {option} and start the job again.",
    )


def other_ids(brokers: Brokers, options: KafkaSinkOptions) -> TopicIds:
    """Return the ids that the topics beside the sink's `topic` have now.

    Raises:
        TargetUnreachableError: one does not exist any more.
    """
    if not options.other_topics:
        return {}
    topics = target_topics(brokers, options)
    return {name: topics[name].topic_id for name in options.other_topics}


def topics_in_handle(ids: TopicIds) -> dict[str, Any]:
    """Return what the handle of a piece says of the other topics that its rows went to."""
    return {_TOPICS: dict(ids)} if ids else {}


def _written(piece: Committable) -> TopicIds:
    written: TopicIds = piece.handle.get(_TOPICS, {})
    return written


def ids_now(brokers: Brokers, pieces: Collection[Committable]) -> TopicIds:
    """Return the ids that the other topics of pieces have now.

    One that does not exist is left out, once the brokers had time to hear of it: each has metadata
    of its own, which may be behind.
    """
    names = {name for piece in pieces for name in _written(piece)}
    if not names:
        return {}
    deadline = brokers.deadline_s()
    while True:
        found = brokers.topics(*names)
        if found.keys() >= names or time.monotonic() >= deadline:
            return {name: topic.topic_id for name, topic in found.items()}
        brokers.wait()


def lost_topics(piece: Committable, now: TopicIds) -> Lost | None:
    """Return what is lost of a piece that nobody has committed, if one of those topics was deleted,
    whether or not it was created again.

    Args:
        piece: the piece.
        now: as `ids_now` returns it.
    """
    gone = [
        f"{name!r} ({id})" for name, id in sorted(_written(piece).items()) if now.get(name) != id
    ]
    if not gone:
        return None
    return Lost(f"its rows went to topics that were deleted since: {', '.join(gone)}")


def least_insync(replicas: int) -> int:
    """Return how many of the replicas of a topic have to have a record that counts as written."""
    return min(_INSYNC_AT_LEAST, replicas)


def find_topic(
    brokers: Brokers,
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    replicas: int,
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
        deadline = brokers.deadline_s()
        while (found := brokers.topic(name)) is None and time.monotonic() < deadline:
            brokers.wait()  # another broker is asked, which has not heard of it yet
    return found
