"""The staging topic of a job's sink: where the rows of `protocol=staged` wait, and for how long.

It is one for each job, sink, topic and ledger, and nobody else writes to it. A task writes to one
partition. What is before the first row that may still be copied is deleted.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twophase.contract.committable import Committable
from twophase.errors import PreflightError
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.chunks import MOST_BYTES
from twophase.sinks.kafka.topics import INSYNC, find_topic, least_insync

_log = logging.getLogger("twophase.sinks.kafka")

_POLICY, _BYTES = "cleanup.policy", "max.message.bytes"
_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_KEPT = {_POLICY: "delete", "unclean.leader.election.enable": "false", **_FOR_EVER}
STAGING_RIGHTS = ("READ", "WRITE", "DELETE", "DESCRIBE_CONFIGS")
"""What the account does to it, in Kafka's words."""


@dataclass(frozen=True)
class StagingTopic:
    """A staging topic.

    Attributes:
        name: its name.
        id: the id of this creation of it.
        partitions: how many it has.
    """

    name: str
    id: str
    partitions: int


@dataclass(frozen=True)
class Place:
    """Where the rows of a piece are, as its handle tells.

    Attributes:
        topic: the staging topic.
        id: the id of that creation of it.
        partition: its partition.
        first: the offset of the first chunk.
        end: the offset behind the last one.
        chunks: how many there are.
    """

    topic: str
    id: str
    partition: int
    first: int
    end: int
    chunks: int

    def handle(self) -> dict[str, Any]:
        """Return what a handle says of it."""
        return {
            _STAGING: self.topic,
            "id": self.id,
            "partition": self.partition,
            "offsets": [self.first, self.end],
            "chunks": self.chunks,
        }

    @classmethod
    def of(cls, piece: Committable) -> Place:
        """Return the place of a staged piece."""
        found = piece.handle
        first, end = found["offsets"]
        return cls(
            found[_STAGING], found["id"], found["partition"], first, end, int(found["chunks"])
        )


_STAGING = "staging"


def is_staged(piece: Committable) -> bool:
    """Return whether the rows of a piece are in a staging topic."""
    return _STAGING in piece.handle


def find_staging(brokers: Brokers, name: str) -> StagingTopic | None:
    """Return a staging topic as it is now; None if it does not exist."""
    found = brokers.topic(name)
    return None if found is None else StagingTopic(name, found.topic_id, len(found.epochs))


def make_staging(brokers: Brokers, name: str, partitions: int, replicas: int) -> None:
    """Create a staging topic, unless it exists.

    Args:
        brokers: an open client.
        name: its name.
        partitions: how many it gets.
        replicas: how many it gets: as many as the topic of the rows that has most.
    """
    find_topic(brokers, name, partitions, _settings(replicas), replicas, create=True)


def check_staging(brokers: Brokers, name: str, replicas: int) -> None:
    """Check a staging topic, if it exists.

    Args:
        brokers: an open client.
        name: its name.
        replicas: how many the topic of the rows has that has most.

    Raises:
        PreflightError: it does not keep what is written to it, or its settings cannot be read.
    """
    if brokers.topic(name) is None:
        return
    own = brokers.replicas(name)[name]
    if own < replicas:
        _log.warning(
            "topic %r has %d replicas, and rows are written to one of %d: those that wait are lost "
            "with fewer brokers. kafka-reassign-partitions.sh adds replicas.",
            *(name, own, replicas),
        )
    settings = brokers.settings(name)[name]
    if _POLICY not in settings:
        raise PreflightError(
            f"The settings of topic {name!r} cannot be read, and it may not keep rows until they "
            "are decided.",
            remedy="give the account the right to DESCRIBE_CONFIGS of it.",
        )
    if problems := _problems(settings, own):
        changes = ",".join(f"{setting}={value}" for setting, value in _settings(own).items())
        raise PreflightError(
            f"Topic {name!r} cannot keep rows until they are decided: {'; '.join(problems)}.",
            remedy=f"alter it: kafka-configs.sh --bootstrap-server "
            f"{shlex.quote(brokers.options.bootstrap_servers)} --alter --entity-type topics "
            f"--entity-name {name} --add-config {changes}",
        )


def _settings(replicas: int) -> dict[str, str]:
    return {**_KEPT, INSYNC: str(least_insync(replicas)), _BYTES: str(MOST_BYTES)}


def _problems(settings: Mapping[str, str], replicas: int) -> list[str]:
    problems = [
        f"its {name} is {settings[name]} and not {value}"
        for name, value in _KEPT.items()
        if settings.get(name) != value
    ]
    for name, lowest in ((INSYNC, least_insync(replicas)), (_BYTES, MOST_BYTES)):
        if int(settings[name]) < lowest:
            problems.append(f"its {name} is {settings[name]}, and has to be {lowest} at least")
    return problems


def what_is_lost(brokers: Brokers, place: Place) -> str:
    """Return why rows are not in their staging topic any more; empty if they may be."""
    found = brokers.topic(place.topic)
    if found is None:
        return f"topic {place.topic!r} does not exist any more"
    if found.topic_id != place.id:
        return (
            f"topic {place.topic!r} was created again: its id is {found.topic_id}, and was "
            f"{place.id}"
        )
    begin, end = brokers.ranges(place.topic, len(found.epochs))[place.partition]
    where = f"partition {place.topic}-{place.partition}"
    if begin > place.first:
        return (
            f"{where} begins with offset {begin}: somebody has deleted records of it, or it has a "
            "retention"
        )
    # brokers tell no end that a new leader has not caught up with (KIP-207)
    if end < place.end:
        return f"{where} ends at offset {end}: its brokers have lost acknowledged records"
    return ""


def delete_staged(
    brokers: Brokers, topic: StagingTopic, ends: Mapping[int, int], live: Iterable[Committable]
) -> None:
    """Delete what is before an offset of each partition, and before the first row of pieces that
    may still be copied.

    Args:
        brokers: an open client.
        topic: the staging topic.
        ends: offsets by partition.
        live: those pieces.
    """
    places = [place for place in map(Place.of, live) if place.id == topic.id]
    bounds = {
        number: min([end, *(place.first for place in places if place.partition == number)])
        for number, end in ends.items()
    }
    ranges = brokers.ranges(topic.name, topic.partitions)
    before = {
        number: bound
        for number, bound in bounds.items()
        if number in ranges and ranges[number][0] < bound <= ranges[number][1]
    }
    brokers.delete_records(topic.name, before)
