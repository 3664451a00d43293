"""Topics and partitions as the brokers describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

UNKNOWN_EPOCH = -1


class Partition(NamedTuple):
    """A partition of a topic, by name."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True)
class Topic:
    """A topic as the broker describes it.

    Attributes:
        topic_id: the id of this creation of the topic.
        epochs: the leader epoch of each partition, by index; -1 if unknown.
    """

    topic_id: str
    epochs: Mapping[int, int]


@dataclass(frozen=True)
class LogEnd:
    """The end of a partition: under read_committed, its last stable offset.

    Attributes:
        offset: the offset after the last record that may be read.
        leader_epoch: the newest leader epoch; -1 if unknown.
    """

    offset: int
    leader_epoch: int = UNKNOWN_EPOCH
