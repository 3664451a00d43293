"""Which records of a range are committed, by the markers in the log.

A transaction writes a marker to each of its partitions when it ends, with the id of its producer.
Consumers do not show them, and those of committed records stop at the first record of any open
transaction. The markers tell the outcome of those behind it, whatever has become of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.clients import Entry


@dataclass
class Settled:
    """The records of a range, in order.

    Attributes:
        committed: those of no transaction, and of committed ones.
        open: those whose transaction has not ended within the range.
    """

    committed: list[Entry] = field(default_factory=list)
    open: list[Entry] = field(default_factory=list)


def settled(brokers: Brokers, topic: str, partition: int, start: int, end: int) -> Settled:
    """Read a range of a partition.

    Args:
        brokers: an open client.
        topic: the topic.
        partition: its partition.
        start: the first offset; no transaction that was begun before it is open there.
        end: the offset behind the last one.
    """
    found = Settled()
    waiting: dict[int, list[Entry]] = {}
    for batch in brokers.batches(topic, partition, start, end):
        if batch.is_control_batch:
            ended = waiting.pop(batch.producer_id, [])
            found.committed += ended if _commits(batch) else []
        elif batch.is_transactional:
            waiting.setdefault(batch.producer_id, []).extend(_entries(batch, start))
        else:
            found.committed += _entries(batch, start)
    found.committed.sort(key=_offset)
    found.open = sorted((one for open in waiting.values() for one in open), key=_offset)
    return found


def _commits(batch: Iterable[Any]) -> bool:
    [marker] = batch
    return bool(marker.commit)


def _entries(batch: Iterable[Any], start: int) -> list[Entry]:
    return [
        Entry(record.offset, record.key or b"", record.value)
        for record in batch
        if record.offset >= start
    ]


def _offset(entry: Entry) -> int:
    return entry.offset
